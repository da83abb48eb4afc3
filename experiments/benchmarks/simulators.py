"""The speed of the simulators: `experiments.benchmarks simulators`.

For each objective it measures placements per second on a random graph of 800 operations, 1024 at
once and one at a time, and how the time per operation grows with the number of operations.
"""

import time

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import problems
from experiments.benchmarks.timing import median_ms
from placement import simulators
from placement.reporting.tables import grids


def run() -> None:
    """Prints the simulators' speed and how it scales."""
    console = Console(width=100)
    rates = grids.new_table(
        "800 operations, 2 devices, all CPU cores: placements a second",
        ("objective",),
        ("1024 at once", "one at a time", "ratio", "compilation s"),
    )
    for name in simulators.OBJECTIVES:
        batch_s, compile_s = _measure_s(name, 800, 1024)
        single_s, _ = _measure_s(name, 800, 1)
        batch_rate, single_rate = 1024 / batch_s, 1 / single_s
        rates.add_row(
            *(name, f"{batch_rate:,.0f}", f"{single_rate:,.0f}"),
            *(f"{batch_rate / single_rate:.0f}x", f"{compile_s:.1f}"),
        )
    console.print(rates)

    sizes = 1_000, 10_000, 100_000
    growth = grids.new_table(
        "ns for an operation of a placement, 2 devices, 128 at once",
        ("objective",),
        tuple(f"{size:,} operations" for size in sizes),
    )
    for name in simulators.OBJECTIVES:
        times_ns = [1e9 * _measure_s(name, size, 128)[0] / (size * 128) for size in sizes]
        growth.add_row(name, *(f"{time_ns:.2f}" for time_ns in times_ns))
    console.print(growth)


def _measure_s(objective: str, num_ops: int, batch: int) -> tuple[float, float]:
    """Returns the median seconds of a simulator's call, and those of its compilation."""
    if objective == "subgraph":
        placements = problems.draw_segments(num_ops, batch)
    else:
        placements = np.random.default_rng(1).integers(0, 2, (batch, num_ops), np.int32)
    problem = problems.make_layered_problem(num_ops, objective)
    jax.block_until_ready(problem.tables)  # not a part of what is timed
    evaluate = problem.evaluate
    start_s = time.perf_counter()
    assert np.isfinite(np.asarray(evaluate(placements))).all()
    compile_s = time.perf_counter() - start_s
    device_placements = jax.device_put(placements)
    return median_ms(lambda: evaluate(device_placements), repeats=20) / 1e3, compile_s
