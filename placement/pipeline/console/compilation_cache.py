"""Compiled functions: kept on disk for later runs, and dropped before they fill the memory map."""

import os

# Linux allows a process 65,530 mappings of memory. Each compiled function has nine; with none left,
# XLA crashes.
_MAX_MAPPINGS = 20_000


def keep_compiled() -> None:
    """Makes JAX keep compiled functions for later runs; call it before JAX is imported."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(cache, "placement"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def limit_compiled(max_mappings: int = _MAX_MAPPINGS) -> None:
    """Drops all compiled functions of this process if it has more mappings of memory than this.

    Until then, later graphs of the same bucket use them.
    """
    import jax

    from placement import stored_jit

    try:
        with open("/proc/self/maps", "rb") as maps:
            num_mappings = sum(1 for _ in maps)
    except OSError:  # not Linux, which alone has the file
        num_mappings = max_mappings + 1
    if num_mappings > max_mappings:
        jax.clear_caches()
        stored_jit.forget()
