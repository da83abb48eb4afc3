"""The optimality gap of `makespan`, with and without the bounds of decision diagrams.

For members of some families on described devices it compares the best known placement, found by
`lns` or `diagram`, with two lower bounds: the bound of all schedules
(`placement.solvers.bounds.makespan`) and the tighter one that decision diagrams prove.
"""

import json
import statistics
import time
from collections.abc import Sequence

from rich.console import Console

from experiments.benchmarks import cells as cells_lib
from experiments.benchmarks.cells import Cell
from placement import arguments, methods, solvers
from placement.pipeline import loading
from placement.reporting.tables import grids
from placement.zoo import families

FAMILIES = "inception_v3", "rnnlm", "two_stream", "fork_join"
HEADER = (
    *("family", "bound of all schedules", "with decision diagrams", "proven optimal"),
    *("`diagram` over `lns`", "`diagram` takes s"),
)
_TIME_LIMIT_S = 10.0  # of every search and bound


def run(*names: str) -> None:
    """Prints the median gaps of the named families, by default of `FAMILIES`.

    Raises:
      UserError: a family does not exist.
    """
    for name in names:
        arguments.check_choice("family", name, families.names())
    table = grids.new_table(
        "makespan: median gap of the best known, on 18 graphs and devices", ("family",), HEADER[1:]
    )
    for row in make_family_rows(measure(names or FAMILIES)):
        table.add_row(*row)
    Console(width=120).print(table)


def measure(names: Sequence[str] = FAMILIES) -> list[Cell]:
    """Returns a cell for every member of the families on every set of devices."""
    return cells_lib.measure_cells(cells_lib.family_cases(names), _measure_problem)


def _measure_problem(problem: loading.SearchProblem) -> dict[str, float]:
    coarse = problem.coarse
    lns = methods.solve(coarse, "lns", time_limit_s=_TIME_LIMIT_S)
    start_s = time.perf_counter()
    diagram = methods.solve(coarse, "diagram", time_limit_s=_TIME_LIMIT_S)
    elapsed_s = time.perf_counter() - start_s
    schedules_s = solvers.lower_bound(coarse, time_limit_s=_TIME_LIMIT_S, any_order=True)
    return {
        "schedules_bound_s": schedules_s,
        "bound_s": max(schedules_s, diagram.bound_s),
        "lns_s": lns.value_s,
        "diagram_s": diagram.value_s,
        "diagram_search_s": elapsed_s,
    }


def compute_gaps(cell: Cell) -> tuple[float, float]:
    """Returns the best known latency's gaps to the bound of all schedules and the best bound."""
    best_s = min(cell.values["lns_s"], cell.values["diagram_s"])
    bounds_s = cell.values["schedules_bound_s"], cell.values["bound_s"]
    schedules_gap, best_gap = (max(0.0, best_s / bound_s - 1) for bound_s in bounds_s)
    return schedules_gap, best_gap


def make_family_rows(cells: Sequence[Cell]) -> list[list[str]]:
    """Returns a row of `HEADER` for each family, and one for all together."""
    rows = []
    for family in [*dict.fromkeys(cell.family for cell in cells), "all"]:
        members = [cell for cell in cells if family in (cell.family, "all")]
        schedules_gaps, best_gaps = zip(*map(compute_gaps, members), strict=True)
        ratio = statistics.geometric_mean(
            cell.values["diagram_s"] / cell.values["lns_s"] for cell in members
        )
        num_proven = sum(gap < 1e-4 for gap in best_gaps)  # a smaller gap is rounding
        search_s = statistics.median(cell.values["diagram_search_s"] for cell in members)
        rows.append(
            [
                f"`{family}`" if family != "all" else family,
                *(f"{statistics.median(gaps):.1%}" for gaps in (schedules_gaps, best_gaps)),
                f"{num_proven} of {len(members)}",
                f"{ratio:.3f}",
                f"{search_s:.1f}",
            ]
        )
    return rows


if __name__ == "__main__":
    print(json.dumps(measure()))
