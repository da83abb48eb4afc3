"""The papers' tables and the tables of the documents, made again from runs."""
