"""Policies: pure functions from a graph to distributions over placements."""
