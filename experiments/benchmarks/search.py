"""`search` compared with `lns`, a plain large-neighbourhood search, in the same time.

    python -m experiments.benchmarks search
    python -m experiments.benchmarks search 1 5:60

Each argument gives the seconds of both, or those of `search` and of `lns`; the default is 1, 5, 20
and 5:60, which takes a night. The graphs are members of the families that the shipped policy was
not trained on, members of all families with at least 1,000 operations, and networks of the zoo. The
devices are described and the objective is `makespan`. A ratio is the mean latency of some seeds
over that of `lns`. Everything is compiled beforehand, except in the column that says so (one seed).
"""

import functools
import itertools
import time
from collections.abc import Iterator

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import cells as cells_lib
from experiments.benchmarks import unseen
from experiments.benchmarks.cells import NUM_MEMBERS, Case, Cell
from placement import methods
from placement.errors import UserError
from placement.methods import pretrained
from placement.pipeline import loading
from placement.reporting.tables import grids
from placement.zoo import families

_TIME_LIMITS = "1", "5", "20", "5:60"
_NETWORKS = "bert_base", "inception_v3", "resnet50"
_SEEDS = range(3)
_NUM_LARGE_MEMBERS, _MAX_DRAWS = 2, 40  # of each family
_LARGE = 1_000  # operations of a large member
_LARGE_COARSE = 500  # coarse operations; the summary has a row for graphs above
_UNLIMITED, _COMPILING_BUDGET = 10**12, 1_000  # evaluations


def run(*limits: str) -> None:
    """Prints, for each time limit, a row for every graph and set of devices, and a summary.

    Args:
      *limits: seconds of each search, see the module; none: `_TIME_LIMITS`.

    Raises:
      UserError: a limit is not one or two numbers above 0.
    """
    console = Console(width=140)
    for limit in limits or _TIME_LIMITS:
        search_s, lns_s = _parse_seconds(limit)
        measure = functools.partial(measure_problem, search_s=search_s, lns_s=lns_s)
        cells = cells_lib.measure_cells(_list_cases(), measure)
        table = grids.new_table(
            f"search, {search_s:g} s, over lns, {lns_s:g} s",
            ("graph", "devices"),
            ("operations", "ratio", "compiling included", "evaluations a second"),
        )
        for cell in cells:
            table.add_row(
                *(cell.graph, cell.device_kinds, str(cell.num_ops), f"{compute_ratio(cell):.3f}"),
                f"{cell.values['compiling_s'] / cell.values['lns_s']:.3f}",
                f"{cell.values['evaluations_per_s']:,.0f}",
            )
        console.print(table)
        console.print(_make_summary(cells))


def _parse_seconds(text: str) -> tuple[float, float]:
    first, _, second = text.partition(":")
    try:
        search_s, lns_s = float(first), float(second or first)
    except ValueError:
        search_s = lns_s = 0.0
    if not (search_s > 0 and lns_s > 0):
        raise UserError(f"given {text!r}; give seconds, such as 5, or of search and lns, 5:60")
    return search_s, lns_s


def _list_cases() -> Iterator[Case]:
    trained_on = unseen.read_training_families(pretrained.SHIPPED.with_name("pretraining.json"))
    names = [name for name in families.names() if name != "chain"]
    graphs = [
        (name, families.draw(name, seed))
        for name in names
        if name not in trained_on
        for seed in range(NUM_MEMBERS)
    ]
    for name in names:
        graphs += [(name, graph) for graph in draw_large_members(name)]
    graphs += [(name, name) for name in _NETWORKS]
    for graph, name in {graph: name for name, graph in graphs}.items():  # no graph twice
        for devices in cells_lib.DEVICE_SETS:
            yield Case(name, graph, devices)


def draw_large_members(family: str) -> Iterator[str]:
    """Yields some members of a family with at least `_LARGE` operations."""
    draws = (families.draw(family, NUM_MEMBERS + seed) for seed in range(_MAX_DRAWS))
    large = (graph for graph in draws if loading.build_graph_network(graph).graph.num_ops >= _LARGE)
    return itertools.islice(large, _NUM_LARGE_MEMBERS)


def measure_problem(
    problem: loading.SearchProblem, search_s: float, lns_s: float
) -> dict[str, float]:
    """Returns mean latencies of `search` and `lns` after so many seconds, and the search's rate."""

    def solve(method: str, seed: int, seconds: float) -> tuple[float, int]:
        solution = methods.solve(
            problem.coarse, method, seed=seed, time_limit_s=seconds, budget=_UNLIMITED
        )
        return solution.value_s, solution.evaluations

    jax.clear_caches()
    compiling_s, _ = solve("search", 0, search_s)
    # A short time limit may have ended before everything was compiled.
    methods.solve(problem.coarse, "search", budget=_COMPILING_BUDGET)
    start_s = time.perf_counter()
    search_results = [solve("search", seed, search_s) for seed in _SEEDS]
    elapsed_s = time.perf_counter() - start_s
    solve("lns", 0, 0.1)  # compiles
    lns_results = [solve("lns", seed, lns_s) for seed in _SEEDS]
    return {
        "search_s": float(np.mean([value_s for value_s, _ in search_results])),
        "compiling_s": compiling_s,
        "lns_s": float(np.mean([value_s for value_s, _ in lns_results])),
        "evaluations_per_s": sum(count for _, count in search_results) / elapsed_s,
    }


def compute_ratio(cell: Cell) -> float:
    """Returns the search's latency over that of `lns`."""
    return cell.values["search_s"] / cell.values["lns_s"]


def _make_summary(cells: list[Cell]) -> grids.Grid:
    table = grids.new_table(
        "together", ("cells",), ("number", "geometric mean", "worst", "at most 1", "best")
    )
    large = [cell for cell in cells if cell.num_ops > _LARGE_COARSE]
    for name, members in (("all", cells), (f"above {_LARGE_COARSE} coarse operations", large)):
        if not members:
            continue
        ratios = np.array([compute_ratio(cell) for cell in members])
        table.add_row(
            name,
            str(len(members)),
            f"{np.exp(np.log(ratios).mean()):.3f}",
            f"{ratios.max():.3f}",
            f"{100 * np.mean(ratios <= 1):.0f}%",
            f"{ratios.min():.3f}",
        )
    return table
