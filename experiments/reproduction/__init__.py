"""Reproduction of the papers' tables and of the measured tables of the documents."""
