"""Solvers that prove nothing: rules, list schedules, partitions, local and random search."""
