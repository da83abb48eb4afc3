"""Growth of the time and memory of each phase of a run with the number of operations.

    python -m experiments.benchmarks scale
    python -m experiments.benchmarks scale 10000 100000

The graphs are layered synthetic graphs of 10,000, 100,000 and 1,000,000 operations, or of the given
sizes, on a described CPU and two described GPUs, objective makespan. Each size runs in a process of
its own; the memory of a phase is the process's peak until the end of the phase. The exponent is the
logarithm of the ratio of times over that of the ratio of sizes, for the last two sizes; 1 is linear
growth. Phases that compile are timed twice, with and without compilation.
"""

import functools
import itertools
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import shared
from placement import methods, solvers
from placement.costs import roofline
from placement.errors import UserError
from placement.graphs import coarsen
from placement.learning import trainer
from placement.methods import learned
from placement.pipeline import loading, place, report
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.reporting.tables import grids
from placement.zoo import synthetic

SIZES = (10_000, 100_000, 1_000_000)
_DEVICES = "roofline:cpu,gpu,gpu"
_LEARNED = "hierarchical:variant=tuned"
_BATCH = 16  # placements simulated at once


class Phase(NamedTuple):
    """The time and memory of a phase at one size."""

    name: str
    seconds: float
    peak_bytes: int  # of the process until the phase's end


def run(*numbers: str) -> None:
    """Prints all phases and sizes, by default of graphs with `SIZES` operations."""
    if not all(number.isdecimal() and int(number) >= 2 for number in numbers):
        raise UserError(
            f"scale takes numbers of operations, such as 10000 100000; given {' '.join(numbers)!r}"
        )
    sizes = tuple(map(int, numbers)) or SIZES
    phases_by_size = [
        [Phase(*phase) for phase in shared.run_module("experiments.benchmarks.scale", str(size))]
        for size in sizes
    ]
    table = grids.new_table(
        f"layered graphs, {_DEVICES}: seconds, and peak GB so far",
        ("phase",),
        (*(f"{size:,} operations" for size in sizes), "exponent"),
    )
    for phases in zip(*phases_by_size, strict=True):
        cells = [f"{phase.seconds:.2f} s  {phase.peak_bytes / 1e9:.1f} GB" for phase in phases]
        exponent = format_exponent(sizes, [phase.seconds for phase in phases])
        table.add_row(phases[0].name, *cells, exponent)
    Console(width=100).print(table)


def format_exponent(sizes: tuple[int, ...], seconds: list[float]) -> str:
    """Returns the exponent of the growth between the last two sizes; '' for one size."""
    if len(sizes) < 2:
        return ""
    return f"{math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2]):.2f}"


def measure(size: int, workdir: Path) -> list[Phase]:
    """Runs all phases, one after another, on a graph of this size."""
    phases: list[Phase] = []

    def run_phase(name: str, function: Callable[[], Any]) -> Any:
        start_s = time.perf_counter()
        result = jax.block_until_ready(function())
        seconds = time.perf_counter() - start_s
        peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
        phases.append(Phase(name, seconds, peak_bytes))
        return result

    names = roofline.parse_devices(_DEVICES)
    graph = run_phase("graph", lambda: synthetic.build(f"synthetic:family=layered,ops={size}"))
    coarsening = run_phase("coarsening", lambda: coarsen.coarsen(graph))
    costs = run_phase("costs", lambda: roofline.cost_model(graph, names))
    net = loading.Network(None, graph, coarsening, {})
    problem = loading.make_problem(net, costs, names, "makespan")
    run_phase("tables", lambda: problem.tables)
    shape = _BATCH, problem.num_decisions
    placements = np.random.default_rng(0).integers(0, len(names), shape, np.int32)
    run_phase("simulating, compiled first", lambda: problem.evaluate(placements))
    run_phase(f"simulating {_BATCH} placements", lambda: problem.evaluate(placements))
    run_phase("heft", lambda: methods.solve(problem, "heft").value_s)
    method = learned.make(_LEARNED, len(problem.devices))
    reading = run_phase(f"{_LEARNED}: features", functools.partial(method.read, problem))
    search = learned.Search(method, reading, problem, evaluate=None)
    start = run_phase(f"{_LEARNED}: start, compiled first", functools.partial(search.start, 0))
    steps = trainer.search(
        *(method.learner, reading, problem, start, 10_000),
        clock_s=itertools.count().__next__,  # so that each report has one step
    )
    # The first report comes after compilation, without a step.
    run_phase(
        f"{_LEARNED}: a step, compiled first", functools.partial(list, itertools.islice(steps, 2))
    )
    run_phase(f"{_LEARNED}: a step", functools.partial(next, steps))
    run_phase("bound", lambda: solvers.lower_bound(problem))

    settings = Settings(
        graph=graph.name,
        devices=_DEVICES,
        objective="makespan",
        evaluate="simulate",
        method="random",
        budget=32_000,
    )
    display = progress.Display(progress.WARNING)
    run_phase(
        "place with random, all of it", lambda: place.run(settings, workdir, display)["compute_s"]
    )
    run_phase("report", lambda: report.run(None, workdir, display)["compute_s"])
    return phases


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measure(int(sys.argv[1]), Path(directory))))
