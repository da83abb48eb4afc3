"""Benchmarks of speed and of solution quality."""
