"""Analyses of one placement: when each device runs what, and what its latency consists of."""
