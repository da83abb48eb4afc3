"""A user's mistake, told apart from a fault of the program."""


class UserError(ValueError):
    """What was given cannot be: one line that says what it is, what is valid and how to mend it.

    Raised only where something given is judged: a flag, a name, a file, an argument. Every other
    exception, a `ValueError` of NumPy or JAX included, is a fault of the program or of the machine,
    and is never told as a mistake of the user's.
    """
