"""Experiments: the command line with configurations, benchmarks, and the papers' tables."""
