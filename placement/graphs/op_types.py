"""Types of operations that graphs, costs and models share; this module does not load JAX."""

# Operations that are never constant though no input depends on the request: they hold or produce a
# state, or are the model's ends.
NEVER_CONSTANT = frozenset(
    {"Parameter", "Result", "ReadValue", "Assign", "RandomUniform", "Multinomial"}
)
