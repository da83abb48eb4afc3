"""Dynamic programs over contiguous splits of a graph."""
