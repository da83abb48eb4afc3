"""How far the best that is known of `makespan` is from what is proven, with and without diagrams.

Graphs of families, six of each, on each of the sets of described devices that `unseen` has: the
bound of all schedules (`placement.solvers.bounds.makespan`), that of decision diagrams beside it,
and what large neighbourhoods and decision diagrams find.
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
from rich.console import Console

from experiments.benchmarks import timing
from experiments.benchmarks.unseen import DEVICES
from placement import arguments, methods, solvers
from placement.costs import roofline
from placement.pipeline import loading
from placement.zoo import families

FAMILIES = "inception_v3", "rnnlm", "two_stream", "fork_join"
_MEMBERS = 6  # of each family
_TIME_LIMIT_S = 10.0  # of every search and bound
_PROVEN = 1e-4  # a gap that rounding may leave


class Cell(NamedTuple):
    """What is known of one graph on one set of devices, in seconds."""

    family: str
    graph: str
    devices: str
    num_ops: int
    schedules_s: float  # the bound of all schedules
    bound_s: float  # the best bound
    lns_s: float
    diagram_s: float
    took_s: float  # by `diagram`, its proof with it

    @property
    def best_s(self) -> float:
        """The best that is known."""
        return min(self.lns_s, self.diagram_s)

    @property
    def gaps(self) -> tuple[float, float]:
        """From the best known to the bound of all schedules, and to the best bound."""
        before, now = (self.best_s / bound_s - 1 for bound_s in (self.schedules_s, self.bound_s))
        return max(0.0, before), max(0.0, now)


def run(*chosen: str) -> None:
    """Prints what is open of each family.

    Args:
      *chosen: families; none: `FAMILIES`.

    Raises:
      UserError: there is no such family.
    """
    for name in chosen:
        arguments.check("family", name, families.names())
    table = timing.table(
        "makespan: median gap of the best known, on 18 graphs and devices", ("family",), HEADER[1:]
    )
    for row in by_family(measure(chosen or FAMILIES)):
        table.add_row(*row)
    Console(width=120).print(table)


HEADER = (
    *("family", "bound of all schedules", "with decision diagrams", "proven optimal"),
    *("`diagram` over `lns`", "`diagram` takes s"),
)


def by_family(cells: Sequence[Cell]) -> list[list[str]]:
    """Returns a row of `HEADER` for each family, and one of all."""
    rows = []
    for family in [*dict.fromkeys(cell.family for cell in cells), "all"]:
        some = [cell for cell in cells if family in (cell.family, "all")]
        before, now = zip(*(cell.gaps for cell in some), strict=True)
        ratio = statistics.geometric_mean(cell.diagram_s / cell.lns_s for cell in some)
        proven = sum(gap < _PROVEN for gap in now)
        rows.append(
            [
                f"`{family}`" if family != "all" else family,
                *(f"{statistics.median(gaps):.1%}" for gaps in (before, now)),
                f"{proven} of {len(some)}",
                f"{ratio:.3f}",
                f"{statistics.median(cell.took_s for cell in some):.1f}",
            ]
        )
    return rows


def measure(chosen: Sequence[str] = FAMILIES) -> list[Cell]:
    """Returns a cell for every graph on every set of devices; prints each to stderr as it comes."""
    work = [
        (family, families.draw(family, seed), devices)
        for family in chosen
        for seed in range(_MEMBERS)
        for devices in DEVICES
    ]
    cells = []
    for number, one in enumerate(work, 1):
        cells.append(_cell(*one))
        jax.clear_caches()
        before, now = cells[-1].gaps
        told = f"{number} of {len(work)}: {one[1]}, {one[2]}: {before:.1%}, {now:.1%}"
        print(told, file=sys.stderr, flush=True)
    return cells


def _cell(family: str, text: str, devices: str) -> Cell:
    names = roofline.devices(devices)
    net = loading.without_weights(text)
    costs = roofline.cost_model(net.graph, names)
    problem = loading.search_problem(net, costs, names, "makespan").coarse
    lns = methods.solve(problem, "lns", time_limit_s=_TIME_LIMIT_S)
    began_s = time.perf_counter()
    diagram = methods.solve(problem, "diagram", time_limit_s=_TIME_LIMIT_S)
    took_s = time.perf_counter() - began_s
    schedules_s = solvers.lower_bound(problem, time_limit_s=_TIME_LIMIT_S, any_order=True)
    return Cell(
        *(family, text, devices, problem.graph.num_ops, schedules_s),
        *(max(schedules_s, diagram.bound_s), lns.value_s, diagram.value_s, took_s),
    )


if __name__ == "__main__":
    print(json.dumps(measure()))
