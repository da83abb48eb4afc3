"""The measuring process, which owns the devices and may die of them. It does not load JAX."""
