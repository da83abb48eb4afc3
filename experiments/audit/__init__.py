"""The audit of all methods on problems that no training saw, with its raw runs."""
