"""Lower bounds that hold for every placement."""
