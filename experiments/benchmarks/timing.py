"""How benchmarks time, and how they print what they timed."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from rich.table import Table


def median_ms(function: Callable[[], Any], repeats: int = 100) -> float:
    """Returns the median time of a call, in milliseconds, after one that compiles."""
    jax.block_until_ready(function())  # compilation
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    """Returns an empty table whose first columns are texts, on the left, and the others numbers."""
    made = Table(title=title)
    for column in texts:
        made.add_column(column)
    for column in numbers:
        made.add_column(column, justify="right")
    return made
