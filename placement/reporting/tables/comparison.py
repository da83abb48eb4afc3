"""Many methods on many graphs, for any seeds: a table of graphs by methods, and comparison.csv.

A cell is the mean over the seeds, from `MIN_RUNS` seeds on with its 95% interval (Student's t).
Measured latencies count where a graph has them, else predicted ones. A learned method has another
column, `own best`: the best that it drew itself, as it was evaluated, without the starts. The
column `reduction` compares the best learned method with the best other method, in percent: it is
negative where the learned method loses. Where a lower bound is known for the best method's
placements, two more columns have the bound and the method's gap.

The statistics over graphs and seeds are of scores: a run's latency over the best known one of its
graph. A graph's *room* is its best known latency over that of the best single device. Without room,
every method that starts from single devices finds the same latency. So the statistics cover the
graphs with room, or all graphs where none has any.
"""

import csv
import io
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import statistics, summaries, units
from placement.reporting.statistics import LEVEL, Interval
from placement.reporting.summaries import Row
from placement.reporting.tables import grids
from placement.types import OUT_OF_MEMORY, Status

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
                # Bounds of predictions say nothing about measured latencies.
                bound_s=math.nan
                if is_measured
                else float(np.min([units.or_nan(row.get("bound_s")) for row in group])),
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


WITH_ROOM = 0.97  # the largest ratio that counts as room
_LEGEND = (
    "A score is a run's latency over the best known one of its graph. Means are geometric, over "
    "graphs and seeds: less is better, 1 is the best known. The other columns are ratios of the "
    "row's mean to that of another method, in bold where the row's method is better: where the "
    f"difference is significant at {statistics.LEVEL:.0%} after Holm's correction for all pairs. "
    "Brackets are 95% intervals. {}"
)
_SCOPES = (
    f"They say nothing about other graphs, because there are fewer than {statistics.MIN_GRAPHS}: "
    f"they cover other seeds, and are left out with fewer than {statistics.MIN_RUNS} of them.",
    "They cover other graphs of the same kinds and other seeds.",
)


def aggregate(table: Comparison, paired: Sequence[str]) -> dict[str, Any]:
    """Aggregates the runs of a comparison; the methods `paired` are compared in pairs.

    Returns:
      The key `statistics` of `summary.json`. `graphs`: for each graph the best known latency, its
      method, the best single device's latency, their ratio `room`, and whether it counts as room.
      `scopes`: by a title, the statistics of the methods with a run on each of the scope's graphs,
      best first, and the methods that are left out.
    """
    graphs: dict[str, dict[str, Any]] = {}
    for graph, cells in table.cells.items():
        best_s = {method: min(cell.runs_s) for method, cell in cells.items()}
        method = min(best_s, key=best_s.__getitem__)
        single_s = best_s.get(SINGLE, math.inf)
        room = units.ratio(best_s[method], single_s)
        graphs[graph] = {
            **{"best_s": best_s[method], "method": method, "single_s": single_s, "room": room},
            "with_room": room <= WITH_ROOM,
        }
    solved = [graph for graph, room in graphs.items() if math.isfinite(room["best_s"])]
    with_room = [graph for graph in solved if graphs[graph]["with_room"]]
    selected = with_room or solved
    if not selected:
        return {"graphs": graphs, "scopes": {}}
    scores = {  # method -> float64 [K] for the K runs of each graph
        method: [
            # Further decimals are float32 rounding.
            np.round([units.ratio(s, graphs[graph]["best_s"]) for s in cells[method].runs_s], 5)
            for graph, cells in table.cells.items()
            if graph in selected
        ]
        for method in table.methods
        if all(method in table.cells[graph] for graph in selected)
    }
    means = {method: statistics.geometric_mean(runs) for method, runs in scores.items()}
    ratios: dict[str, dict[str, Any]] = {}
    pairs = [*itertools.combinations([method for method in paired if method in scores], 2)]
    p_values = statistics.adjust([statistics.compare(scores[a], scores[b])[1] for a, b in pairs])
    for pair, p_value in zip(pairs, p_values, strict=True):
        for method, rival in (pair, pair[::-1]):
            ratio = statistics.compare(scores[method], scores[rival]).interval
            ratios.setdefault(method, {})[rival] = {**ratio._asdict(), "p_value": p_value}
    scope = {
        "graphs": selected,
        "means": {
            method: mean._asdict()
            for method, mean in sorted(means.items(), key=lambda item: item[1].value)
        },
        "ratios": ratios,
        "left_out": [method for method in table.methods if method not in scores],
    }
    return {"graphs": graphs, "scopes": {"graphs with room" if with_room else "all graphs": scope}}


def write_statistics(results: Mapping[str, Any]) -> str:
    """Writes a Markdown section of the statistics: which graphs have room, and the methods."""

    def write(interval: Mapping[str, float | None]) -> str:
        numbers = (units.or_nan(interval[name]) for name in Interval._fields)
        return Interval(*numbers).write()

    rooms = results["graphs"]
    unsolved = [graph for graph, room in rooms.items() if units.number(room["best_s"]) is None]
    flat = [graph for graph in rooms if graph not in unsolved and not rooms[graph]["with_room"]]
    count = len(rooms) - len(flat) - len(unsolved)
    text = (
        "A graph has room where its best known latency, of any method and seed, is at most "
        f"{WITH_ROOM} of that of the best single device: {count} of {len(rooms)}."
    )
    text += f" Without room: {grids.listed(flat)}." if flat else ""
    text += f" Nothing runs on: {grids.listed(unsolved)}." if unsolved else ""
    parts = ["### Methods over all runs", text]
    for title, scope in results["scopes"].items():
        means, ratios, graphs = scope["means"], scope["ratios"], scope["graphs"]
        headers = (f"over {rival}" for rival in ratios)
        table = grids.Grid(["method", f"{title} ({len(graphs)})", *headers])
        for method, mean in means.items():
            row = [write(mean)]
            for rival in ratios:
                ratio = ratios.get(method, {}).get(rival)
                text = write(ratio) if ratio else ""
                is_better = ratio and ratio["value"] < 1 and units.or_nan(ratio["p_value"]) < LEVEL
                row.append(grids.bold(text) if is_better else text)
            table.add_row(method, *row)
        parts += [table.markdown(), _LEGEND.format(_SCOPES[len(graphs) >= statistics.MIN_GRAPHS])]
        if scope["left_out"]:
            omitted = grids.listed(scope["left_out"])
            parts.append(f"Left out, without a run on some of them: {omitted}.")
    return "\n\n".join(parts)
