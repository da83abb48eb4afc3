"""JAX's compilation cache, shared by all commands of a user."""

import os


def keep_compiled() -> None:
    """Makes JAX keep compiled functions for later runs; call it before JAX is imported."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(cache, "placement"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
