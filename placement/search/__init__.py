"""The search of this project: a compiled population, to which proposers give children."""
