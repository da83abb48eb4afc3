"""Solvers: classical and exact searches for a placement."""
