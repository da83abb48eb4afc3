"""Dynamic programs over contiguous parts of a graph."""
