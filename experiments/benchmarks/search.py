"""What the search finds beside `lns`, a plain large-neighbourhood search, in the same time.

    python -m experiments.benchmarks search
    python -m experiments.benchmarks search 1 5:60

Each argument is the seconds of both, or those of `search` and of `lns`; by default 1, 5, 20 and
5:60, which takes a night. Graphs are members of the families that the shipped policy has not
learned on, members of all families with 1,000 operations and more, and the networks of the zoo;
devices are described, the objective is `makespan`. A cell is the mean latency of some seeds over
that of `lns`; what compiles was compiled before, but for the column that says so, of one seed.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import problems, timing, unseen
from placement import methods
from placement.costs import roofline
from placement.errors import UserError
from placement.methods import pretrained
from placement.pipeline import loading
from placement.types import Problem
from placement.zoo import families

_DEFAULT = "1", "5", "20", "5:60"
_SEEDS = range(3)
_MEMBERS, _LARGE_MEMBERS, _DRAWS = 6, 2, 40  # of each family
_LARGE, _MANY = 1_000, 500  # operations of large members; coarse ones above which a mean is told
_UNLIMITED, _COMPILES = 10**12, 1_000  # evaluations


class Cell(NamedTuple):
    """What was found of one graph on one set of devices; latencies in seconds, means of seeds."""

    graph: str
    devices: str
    num_ops: int
    search_s: float
    compiling_s: float  # where the search's seconds include compiling, of one seed
    lns_s: float
    evaluations_per_s: float  # of the search

    @property
    def ratio(self) -> float:
        """The search's latency over that of `lns`."""
        return self.search_s / self.lns_s


def run(*limits: str) -> None:
    """Prints a row for every graph and devices, and what the rows say together.

    Args:
      *limits: seconds of each search, see the module; none: all of `_DEFAULT`.

    Raises:
      UserError: one of them is no number above 0, or two: one line.
    """
    console = Console(width=140)
    for limit in limits or _DEFAULT:
        search_s, lns_s = _seconds(limit)
        cells = []
        for graph, devices, problem in _problems():
            cells.append(_cell(graph, devices, problem, search_s, lns_s))
            print(json.dumps(cells[-1]._asdict()), file=sys.stderr, flush=True)
        console.print(_table(f"search, {search_s:g} s, over lns, {lns_s:g} s", cells))
        console.print(_summary(cells))


def _seconds(text: str) -> tuple[float, float]:
    first, _, second = text.partition(":")
    try:
        search_s, lns_s = float(first), float(second or first)
    except ValueError:
        search_s = lns_s = 0.0
    if not (search_s > 0 and lns_s > 0):
        raise UserError(f"given {text!r}; give seconds, such as 5, or of search and lns, 5:60")
    return search_s, lns_s


def _problems() -> Iterator[tuple[str, str, Problem]]:
    """Yields graphs, devices and the coarse problems."""
    seen = unseen.families_seen(pretrained.SHIPPED.with_name("pretraining.json"))
    names = [name for name in families.names() if name != "chain"]
    texts = [
        families.draw(name, seed) for name in names if name not in seen for seed in range(_MEMBERS)
    ]
    texts += [
        text for name in names for text in itertools.islice(_large_members(name), _LARGE_MEMBERS)
    ]
    for text in dict.fromkeys((*texts, *problems.NETWORKS)):
        net = loading.without_weights(text)
        for devices in unseen.DEVICES:
            described = roofline.devices(devices)
            costs = roofline.cost_model(net.graph, described)
            yield text, devices, loading.search_problem(net, costs, described, "makespan").coarse


def _large_members(name: str) -> Iterator[str]:
    for seed in range(_MEMBERS, _MEMBERS + _DRAWS):
        text = families.draw(name, seed)
        if loading.without_weights(text).graph.num_ops >= _LARGE:
            yield text


def _cell(graph: str, devices: str, problem: Problem, search_s: float, lns_s: float) -> Cell:
    def found(method: str, seed: int, seconds: float) -> tuple[float, int]:
        solution = methods.solve(
            problem, method, seed=seed, time_limit_s=seconds, budget=_UNLIMITED
        )
        return solution.value_s, solution.evaluations

    jax.clear_caches()
    compiling_s, _ = found("search", 0, search_s)
    # However short the seconds, what follows finds everything compiled.
    methods.solve(problem, "search", budget=_COMPILES)
    began_s = time.perf_counter()
    ours = [found("search", seed, search_s) for seed in _SEEDS]
    took_s = time.perf_counter() - began_s
    found("lns", 0, 0.1)
    plain = [found("lns", seed, lns_s) for seed in _SEEDS]
    return Cell(
        graph=graph,
        devices=devices,
        num_ops=problem.graph.num_ops,
        search_s=float(np.mean([value_s for value_s, _ in ours])),
        compiling_s=compiling_s,
        lns_s=float(np.mean([value_s for value_s, _ in plain])),
        evaluations_per_s=sum(count for _, count in ours) / took_s,
    )


def _table(title: str, cells: list[Cell]) -> timing.Table:
    table = timing.table(
        title,
        ("graph", "devices"),
        ("operations", "ratio", "compiling included", "evaluations a second"),
    )
    for cell in cells:
        table.add_row(
            cell.graph,
            cell.devices.partition(":")[2],
            str(cell.num_ops),
            f"{cell.ratio:.3f}",
            f"{cell.compiling_s / cell.lns_s:.3f}",
            f"{cell.evaluations_per_s:,.0f}",
        )
    return table


def _summary(cells: list[Cell]) -> timing.Table:
    table = timing.table(
        "together", ("cells",), ("number", "geometric mean", "worst", "at most 1", "best")
    )
    large = [cell for cell in cells if cell.num_ops > _MANY]
    for name, some in (("all", cells), (f"above {_MANY} coarse operations", large)):
        if not some:
            continue
        ratios = np.array([cell.ratio for cell in some])
        table.add_row(
            name,
            str(len(some)),
            f"{np.exp(np.log(ratios).mean()):.3f}",
            f"{ratios.max():.3f}",
            f"{100 * np.mean(ratios <= 1):.0f}%",
            f"{ratios.min():.3f}",
        )
    return table
