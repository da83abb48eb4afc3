"""The search: proposers draw children of placements, the compiled simulator says which to keep."""
