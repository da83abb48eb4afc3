"""Types of operations that graphs, costs and models agree on; a module that loads no JAX."""

# Without inputs that depend on the request, yet no constants: they hold or make a state, or are
# the model's ends.
NEVER_CONSTANT = frozenset(
    {"Parameter", "Result", "ReadValue", "Assign", "RandomUniform", "Multinomial"}
)
