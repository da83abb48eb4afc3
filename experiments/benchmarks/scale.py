"""How the time and the memory of each phase of a run grow with the number of operations.

    python -m experiments.benchmarks scale
    python -m experiments.benchmarks scale 10000 100000

Layered synthetic graphs of 10,000, 100,000 and 1,000,000 operations, or of the sizes given, on a
described CPU and two described GPUs, objective makespan. Each size has a process of its own, so
that the peak of its memory is its own; that of a phase is the process's until the phase's end.
An exponent of 1 is linear: the logarithm of the ratio of times over that of the ratio of sizes, of
the last two sizes. What compiles is timed once, and then the same again without.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import timing
from placement import methods, solvers
from placement.costs import roofline
from placement.errors import UserError
from placement.graphs import coarsen
from placement.learning import trainer
from placement.methods import learned
from placement.pipeline import loading
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import place, report
from placement.zoo import synthetic

SIZES = (10_000, 100_000, 1_000_000)
_DEVICES = "roofline:cpu,gpu,gpu"
_LEARNED = "hsdag", "hierarchical"
_SIMULATED = 16  # placements at once
_WHOLE = "place with random, all of it"


class Phase(NamedTuple):
    """What a phase took at one size."""

    name: str
    seconds: float
    peak_bytes: int  # of the process until its end


def run(*numbers: str) -> None:
    """Prints the table of all phases and sizes, and which phase dominates the largest.

    Args:
      *numbers: of operations, by default `SIZES`.

    Raises:
      UserError: one of them is none.
    """
    if not all(number.isdecimal() and int(number) >= 2 for number in numbers):
        raise UserError(
            f"scale takes numbers of operations; given {' '.join(numbers)!r}: give such as 10000 "
            "100000"
        )
    sizes = tuple(map(int, numbers)) or SIZES
    measured = {size: _in_a_process(size) for size in sizes}
    table = timing.table(
        f"layered graphs, {_DEVICES}: seconds, and peak GB until then",
        ("phase",),
        (*(f"{size:,} operations" for size in sizes), "exponent"),
    )
    for phases in zip(*measured.values(), strict=True):
        cells = [f"{phase.seconds:.2f} s  {phase.peak_bytes / 1e9:.1f} GB" for phase in phases]
        table.add_row(phases[0].name, *cells, exponent(sizes, [p.seconds for p in phases]))
    console = Console(width=100)
    console.print(table)
    console.print(dominating(sizes[-1], measured[sizes[-1]]))


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> str:
    """Returns that of the growth between the last two sizes; nothing of one size."""
    if len(sizes) < 2:
        return ""
    return f"{math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2]):.2f}"


def dominating(size: int, phases: list[Phase]) -> str:
    """Returns one line: the longest phase and its share of all."""
    parts = [phase for phase in phases if phase.name != _WHOLE]
    longest = max(parts, key=lambda phase: phase.seconds)
    total_s = sum(phase.seconds for phase in parts)
    return (
        f"at {size:,} operations {longest.name!r} dominates: {longest.seconds:.1f} of "
        f"{total_s:.1f} s"
    )


def measure(size: int, workdir: Path) -> list[Phase]:
    """Runs all phases on a graph of this size, one after another."""
    phases: list[Phase] = []

    def timed(name: str, function: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = jax.block_until_ready(function())
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        phases.append(Phase(name, seconds, peak))
        return result

    names = roofline.devices(_DEVICES)
    graph = timed("graph", lambda: synthetic.build(f"synthetic:family=layered,ops={size}"))
    coarsening = timed("coarsening", lambda: coarsen.coarsen(graph))
    costs = timed("costs", lambda: roofline.cost_model(graph, names))
    net = loading.Network(None, graph, coarsening, {})
    problem = timed("tables", lambda: loading.search_problem(net, costs, names, "makespan"))
    shape = _SIMULATED, problem.coarse.graph.num_ops
    placements = np.random.default_rng(0).integers(0, len(names), shape, np.int32)
    timed("simulating, compiled first", lambda: problem.simulate(placements))
    timed(f"simulating {_SIMULATED} placements", lambda: problem.simulate(placements))
    timed("heft", lambda: methods.solve(problem.coarse, "heft").value_s)
    for method in _LEARNED:
        _learn(method, problem, timed)
    timed("bound", lambda: solvers.lower_bound(problem.full))
    _report(graph.name, workdir, timed)
    return phases


def _learn(method: str, problem: loading.SearchProblem, timed: Callable[..., Any]) -> None:
    """Times what a policy reads, and its steps: sample, simulate, update."""
    num_ops, num_devices = problem.coarse.costs.compute_s.shape
    made = learned.make(method, num_devices, False)
    reading = timed(f"{method}: features", lambda: made.read(problem.coarse))
    key = jax.random.PRNGKey(0)
    start = timed(
        f"{method}: start, compiled first",
        lambda: trainer.start(
            made.learner, key, reading.graph, problem.simulate, num_ops, num_devices
        ),
    )
    steps = trainer.search_simulated(
        made.learner,
        reading.graph,
        trainer.Simulator.of(problem.coarse)._replace(assignment=reading.assignment),
        start,
        10_000,
        pace=lambda: 1,
    )
    timed(f"{method}: a step, compiled first", lambda: next(steps).progress.elite_s)
    progress = timed(f"{method}: a step", lambda: next(steps).progress)
    assert progress.evaluations > start.evaluations


def _report(graph: str, workdir: Path, timed: Callable[..., Any]) -> None:
    """Times a command that hardly searches, and its report once more."""
    settings = Settings(
        graph=graph,
        devices=_DEVICES,
        objective="makespan",
        evaluate="simulate",
        method="random",
    )
    quiet = progress.Display(progress.WARNING)
    timed(_WHOLE, lambda: place.run(settings, workdir, quiet)["compute_s"])
    timed("report", lambda: report.run(None, workdir, quiet)["compute_s"])


def _in_a_process(size: int) -> list[Phase]:
    command = [sys.executable, "-m", "experiments.benchmarks.scale", str(size)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [Phase(*phase) for phase in json.loads(lines.splitlines()[-1])]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measure(int(sys.argv[1]), Path(directory))))
