"""Errors of the user's, told apart from faults of the program, and what to do about some."""


class UserError(ValueError):
    """What was given cannot be: one line that says what it is, what is valid and how to mend it.

    Raised only where something given is judged: a flag, a name, a file, an argument. Every other
    exception, a `ValueError` of NumPy or JAX included, is a fault of the program or of the machine,
    and is never told as a mistake of the user's.
    """


def missing_extra(package: str, extra: str) -> str:
    """Returns the line about an optional package that is not installed.

    Args:
      package: its name, such as 'ortools'.
      extra: the extra of pyproject.toml that brings it, such as 'solvers'.
    """
    return f"{package} is not installed; in the project's folder: pip install -e '.[{extra}]'"
