"""Measures the costs of a model and the latencies of placements, in a separate process."""
