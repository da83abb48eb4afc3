"""Table of many methods on many graphs, as in the Hierarchical Planner's paper, for any seeds.

A cell is the mean over the seeds, from `MIN_RUNS` seeds on with its 95% interval (Student's t).
Measured latencies count where a graph has them, else predicted ones. The column `reduction`
compares the best learned method with the best other method, in percent: it is negative where the
learned method loses. Where a lower bound is known for the best method's placements, two more
columns have the bound and the method's gap.
"""

import csv
import io
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from placement.reporting import summaries, units
from placement.reporting.statistics import MIN_RUNS
from placement.reporting.tables import grids
from placement.types import OUT_OF_MEMORY, Status

Row = Mapping[str, Any]

_CSV = (
    *("graph", "seed", "method", "predicted_s", "measured_s", "versus_best_single_device"),
    *("bound_s", "gap", "search_s", "evaluations", "measurements", "status"),
)
SINGLE = "best single device"
OOM = "OOM"  # a placement that runs out of memory, as papers write it


class Cell(NamedTuple):
    """A method on a graph."""

    latency_s: grids.Estimate  # inf where any seed has no number
    runs_s: tuple[float, ...]  # latency of each seed
    search_s: float  # mean
    bound_s: float  # the smallest bound of the seeds; nan where any is missing
    out_of_memory: bool = False  # whether any seed's placement exceeds a memory, so has no latency


class Comparison(NamedTuple):
    """All cells: `cells[graph][method]`; a method may be missing on a graph."""

    graphs: tuple[str, ...]
    methods: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]
    best: dict[str, str]  # graph -> method of the lowest mean
    # graph -> 1 - best learned / best other; nan where either is missing
    reduction: dict[str, float]


def compare(rows: Iterable[Row], learned: Collection[str]) -> Comparison:
    """Aggregates rows that carry 'graph' and 'seed'; reference rows are left out.

    The single devices become one method, the best of them.
    """
    placements = [row for row in rows if not row.get("reference")]
    graphs = tuple(dict.fromkeys(row["graph"] for row in placements))
    methods = tuple(dict.fromkeys(_method(row) for row in placements))
    cells: dict[str, dict[str, Cell]] = {}
    for graph in graphs:
        graph_rows = [row for row in placements if row["graph"] == graph]
        measured = any(summaries.median_s(row) is not None for row in graph_rows)
        seconds = summaries.median_s if measured else summaries.predicted_s
        rows_by_method = {m: [row for row in graph_rows if _method(row) == m] for m in methods}
        cells[graph] = {m: _cell(rows, seconds) for m, rows in rows_by_method.items() if rows}
    best = {
        graph: min(by_method, key=lambda method: by_method[method].latency_s.mean)
        for graph, by_method in cells.items()
    }
    reduction = {g: _reduction(cells[g], learned) for g in graphs}
    return Comparison(graphs, methods, cells, best, reduction)


def rich_table(comparison: Comparison, title: str) -> Table:
    """Makes the table for a terminal: graphs by methods, the best of a graph in bold.

    Methods are rows where they outnumber the graphs, because a terminal is narrow and scrolls.
    """
    header, rows = _grid(comparison, grids.BOLD_RICH)
    if len(comparison.methods) > len(comparison.graphs):
        header, *rows = map(list, zip(header, *rows, strict=True))
    return grids.rich_table(header, rows, title=title)


def markdown(comparison: Comparison) -> str:
    """Returns the table of `rich_table` in Markdown."""
    return grids.markdown(*_grid(comparison, grids.BOLD_MARKDOWN))


def latex(comparison: Comparison) -> str:
    """Returns the table of `rich_table` in LaTeX, see `grids.latex`."""
    return grids.latex(*_grid(comparison, grids.BOLD_LATEX))


def records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Returns every row as comparison.csv has it, references included; a missing value is None.

    A measured latency is its median.
    """
    medians = ({**row, "measured_s": summaries.median_s(row)} for row in rows)
    selected = [{key: row.get(key) for key in _CSV} for row in medians]
    return [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in selected
    ]


def to_csv(rows: Iterable[Row]) -> str:
    """Writes the `records` of the rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(rows))
    return text.getvalue()


def _method(row: Row) -> str:
    return SINGLE if summaries.is_single(row) else row["method"]


def _cell(rows: list[Row], seconds: Callable[[Row], float | None]) -> Cell:
    """Aggregates the fastest row of each seed; only single devices have several rows."""
    seed_latencies_s: dict[Any, list[float]] = {}
    for row in rows:
        value = seconds(row)
        seed_latencies_s.setdefault(row["seed"], []).append(math.inf if value is None else value)
    values = [min(latencies_s) for latencies_s in seed_latencies_s.values()]
    search_s = float(np.mean([row["search_s"] for row in rows]))
    bound_s = float(np.min([units.or_nan(row.get("bound_s")) for row in rows]))
    out_of_memory = Status.FAILED.describe(OUT_OF_MEMORY)
    exceeds = math.isinf(max(values)) and any(
        (row.get("status") or "").startswith(out_of_memory) for row in rows
    )
    return Cell(grids.estimate(values), tuple(values), search_s, bound_s, exceeds)


def _reduction(cells: Mapping[str, Cell], learned: Collection[str]) -> float:
    ours = min((c.latency_s.mean for m, c in cells.items() if m in learned), default=math.inf)
    theirs = min((c.latency_s.mean for m, c in cells.items() if m not in learned), default=math.inf)
    return (
        1 - units.ratio(ours, theirs) if math.isfinite(ours) and math.isfinite(theirs) else math.nan
    )


def _grid(comparison: Comparison, best: str) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows; `best` is the format of a graph's best value.

    Fewer than `MIN_RUNS` seeds do not show which value is best.
    """
    fastest = {graph: comparison.cells[graph][method] for graph, method in comparison.best.items()}
    has_bounds = not all(math.isnan(cell.bound_s) for cell in fastest.values())
    header = ["graph", *comparison.methods, "reduction"]
    header += ["bound", "gap of the best"] if has_bounds else []
    rows = []
    for graph, cells in comparison.cells.items():
        unit = units.latency_unit(cell.latency_s.mean for cell in cells.values())
        row = [f"{graph}, {unit.name}"]
        has_enough_runs = max(len(cell.runs_s) for cell in cells.values()) >= MIN_RUNS
        for method in comparison.methods:
            cell = cells.get(method)
            if cell is None or not math.isfinite(cell.latency_s.mean):
                row.append(OOM if cell and cell.out_of_memory else "-")
                continue
            text = cell.latency_s.write(unit)
            is_best = has_enough_runs and method == comparison.best[graph]
            row.append(best.format(text) if is_best else text)
        row.append(_percent(comparison.reduction[graph]))
        if has_bounds:
            bound_s = fastest[graph].bound_s
            gap = units.ratio(fastest[graph].latency_s.mean, bound_s) - 1
            row += [unit.write(bound_s), _percent(gap)]
        rows.append(row)
    return header, rows


def _percent(value: float) -> str:
    return f"{value:z.1%}" if math.isfinite(value) else "-"
