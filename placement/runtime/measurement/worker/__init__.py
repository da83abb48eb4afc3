"""What runs in the process that owns the devices, which may die of it. It loads no JAX."""
