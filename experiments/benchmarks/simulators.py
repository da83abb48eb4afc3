"""How fast the simulators are: `experiments.benchmarks simulators`.

Placements a second of each objective on a random graph of 800 operations, 1024 at once and one at a
time, and how the cost of an operation grows with their number.
"""

import time

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import problems
from experiments.benchmarks.timing import median_ms, table
from placement import simulators


def run() -> None:
    """Prints how fast the simulators are, and how that scales."""
    console = Console(width=100)
    rates = table(
        "800 operations, 2 devices, all CPU cores: placements a second",
        ("objective",),
        ("1024 at once", "one at a time", "ratio", "compilation s"),
    )
    for name in simulators.OBJECTIVES:
        batch_s, compile_s = _simulate_s(name, 800, 1024)
        one_s, _ = _simulate_s(name, 800, 1)
        batched, single = 1024 / batch_s, 1 / one_s
        cells = f"{batched:,.0f}", f"{single:,.0f}", f"{batched / single:.0f}x"
        rates.add_row(name, *cells, f"{compile_s:.1f}")
    console.print(rates)

    sizes = 1_000, 10_000, 100_000
    growth = table(
        "ns for an operation of a placement, 2 devices, 128 at once",
        ("objective",),
        tuple(f"{size:,} operations" for size in sizes),
    )
    for name in simulators.OBJECTIVES:
        costs = [1e9 * _simulate_s(name, size, 128)[0] / (size * 128) for size in sizes]
        growth.add_row(name, *(f"{cost:.2f}" for cost in costs))
    console.print(growth)


def _simulate_s(name: str, num_ops: int, batch: int) -> tuple[float, float]:
    """Returns seconds of a call to the simulator, the median, and of its compilation."""
    if name == "subgraph":
        placements = problems.segments(num_ops, batch)
    else:
        placements = np.random.default_rng(1).integers(0, 2, (batch, num_ops), np.int32)
    problem = problems.of_size(num_ops, name)
    jax.block_until_ready(problem.tables)  # not a part of what is timed
    evaluate = problem.evaluate
    start = time.perf_counter()
    assert np.isfinite(np.asarray(evaluate(placements))).all()
    compile_s = time.perf_counter() - start
    held = jax.device_put(placements)
    return median_ms(lambda: evaluate(held), repeats=20) / 1e3, compile_s
