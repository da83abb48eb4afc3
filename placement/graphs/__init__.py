"""Computation graphs on the host: validation, order, coarsening, features."""
