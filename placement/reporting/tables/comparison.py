"""Many methods on many graphs, for any seeds: a table of graphs by methods, and comparison.csv.

A cell is the mean over the seeds, from `MIN_RUNS` seeds on with its 95% interval (Student's t).
Measured latencies count where a graph has them, else predicted ones. A learned method has another
column, `own best`: the best that it drew itself, as it was evaluated, without the starts. The
column `reduction` compares the best learned method with the best other method, in percent: it is
negative where the learned method loses. Where a lower bound is known for the best method's
placements, two more columns have the bound and the method's gap.
"""

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import statistics, summaries, units
from placement.reporting.tables import grids
from placement.types import OUT_OF_MEMORY, Status

Row = Mapping[str, Any]

_CSV = (
    *("graph", "seed", "method", "predicted_s", "own_best_s", "measured_s"),
    "versus_best_single_device",
    *("bound_s", "gap", "search_s", "evaluations", "measurements", "status"),
)
SINGLE = "best single device"
OOM = "OOM"  # a placement that runs out of memory, as papers write it
_OUT_OF_MEMORY = Status.FAILED.describe(OUT_OF_MEMORY)


class Cell(NamedTuple):
    """A method on a graph."""

    latency_s: statistics.Estimate  # inf where any seed has no number
    runs_s: tuple[float, ...]  # latency of each seed
    bound_s: float  # the smallest bound of the seeds; nan where any is missing
    # The best that a learned method drew, without the starts; nan of other methods.
    own_best_s: statistics.Estimate
    out_of_memory: bool = False  # whether any seed's placement exceeds a memory, so has no latency


class Comparison(NamedTuple):
    """All cells: `cells[graph][method]`; a method may be missing on a graph."""

    methods: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]
    best: dict[str, str]  # graph -> method of the lowest mean
    # graph -> 1 - best learned / best other; nan where either is missing
    reduction: dict[str, float]


def compare(rows: Iterable[Row], learned: Collection[str]) -> Comparison:
    """Aggregates rows that carry 'graph' and 'seed'; reference rows are left out.

    The single devices become one method, the best of them.
    """
    placements = [
        {**row, "method": SINGLE} if summaries.is_single(row) else row
        for row in summaries.split_references(rows)[0]
    ]
    cells: dict[str, dict[str, Cell]] = {}
    best: dict[str, str] = {}
    reduction: dict[str, float] = {}
    for graph_rows in summaries.group_by_graph(placements):
        graph = graph_rows[0]["graph"]
        cells[graph] = {}
        is_measured = any(summaries.median_s(row) is not None for row in graph_rows)
        seconds = summaries.median_s if is_measured else summaries.predicted_s
        for method, group in summaries.group(graph_rows, lambda row: row["method"]).items():
            # The fastest row of each seed; only single devices have several rows.
            runs_s = [
                min((s for s in map(seconds, seed_rows) if s is not None), default=math.inf)
                for seed_rows in summaries.group(group, lambda row: row["seed"]).values()
            ]
            statuses = [row.get("status") or "" for row in group]
            cells[graph][method] = Cell(
                statistics.estimate(runs_s),
                tuple(runs_s),
                bound_s=float(np.min([units.or_nan(row.get("bound_s")) for row in group])),
                own_best_s=statistics.estimate(
                    [units.or_nan(row.get("own_best_s")) for row in group]
                ),
                out_of_memory=math.isinf(max(runs_s))
                and any(text.startswith(_OUT_OF_MEMORY) for text in statuses),
            )
        means_s = {method: cell.latency_s.mean for method, cell in cells[graph].items()}
        best[graph] = min(means_s, key=means_s.__getitem__)
        ours = min((s for m, s in means_s.items() if m in learned), default=math.inf)
        theirs = min((s for m, s in means_s.items() if m not in learned), default=math.inf)
        is_finite = math.isfinite(ours) and math.isfinite(theirs)
        reduction[graph] = 1 - units.ratio(ours, theirs) if is_finite else math.nan
    methods = tuple(dict.fromkeys(row["method"] for row in placements))
    return Comparison(methods, cells, best, reduction)


def grid(comparison: Comparison) -> grids.Grid:
    """Makes the table of graphs by methods, the best of a graph in bold.

    Fewer than `MIN_RUNS` seeds do not show which method is best.
    """
    fastest = {graph: comparison.cells[graph][method] for graph, method in comparison.best.items()}
    has_bounds = not all(math.isnan(cell.bound_s) for cell in fastest.values())
    by_graph = comparison.cells.values()
    drawing = [  # the methods that have a number in `own best`
        method
        for method in comparison.methods
        if any(method in cells and cells[method].own_best_s.mean > 0 for cells in by_graph)
    ]
    header = ["graph", *comparison.methods, *(f"{m}: own best" for m in drawing), "reduction"]
    header += ["bound", "gap of the best"] if has_bounds else []
    table = grids.Grid(header)
    for graph, cells in comparison.cells.items():
        unit = units.latency_unit(cell.latency_s.mean for cell in cells.values())
        row = [f"{graph}, {unit.name}"]
        has_enough_runs = max(len(cell.runs_s) for cell in cells.values()) >= statistics.MIN_RUNS
        for method in comparison.methods:
            cell = cells.get(method)
            if cell is None or not math.isfinite(cell.latency_s.mean):
                row.append(OOM if cell and cell.out_of_memory else units.NONE)
                continue
            text = cell.latency_s.write(unit)
            is_best = has_enough_runs and method == comparison.best[graph]
            row.append(grids.bold(text) if is_best else text)
        row += [cells[m].own_best_s.write(unit) if m in cells else units.NONE for m in drawing]
        row.append(units.write(comparison.reduction[graph], "z.1%"))
        if has_bounds:
            bound_s = fastest[graph].bound_s
            gap = units.ratio(fastest[graph].latency_s.mean, bound_s) - 1
            row += [unit.write(bound_s), units.write(gap, "z.1%")]
        table.add_row(*row)
    return table


def terminal_table(comparison: Comparison, title: str) -> grids.Grid:
    """Makes the table for a terminal, which is narrow and scrolls: the longer list goes down."""
    table = grid(comparison)
    if len(comparison.methods) > len(comparison.cells):
        header, *rows = map(list, zip(table.header, *table.rows, strict=True))
        table = grids.Grid(header, rows=[tuple(row) for row in rows])
    table.title = title
    return table


def records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Returns every row as comparison.csv has it, references included; a missing value is None.

    A measured latency is its median.
    """
    numbers = (
        *("predicted_s", "own_best_s", "versus_best_single_device"),
        *("bound_s", "gap", "search_s"),
    )
    return [
        {key: row.get(key) for key in _CSV}
        | {key: units.number(row.get(key)) for key in numbers}
        | {"measured_s": summaries.median_s(row)}
        for row in rows
    ]


def to_csv(rows: Iterable[Row]) -> str:
    """Writes the `records` of the rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(rows))
    return text.getvalue()
