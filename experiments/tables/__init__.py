"""The tables of README.md and docs/, made from stored runs."""
