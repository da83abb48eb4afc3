"""Methods over all runs of a comparison: statistics over graphs and seeds.

A run's score is its latency over the best known one of its graph, of any method and seed: lower is
better, 1 equals the best known. `placement.reporting.statistics` defines the statistics.

A graph's *headroom* is its best known latency over that of the best single device. Without
headroom, every method that starts from single devices finds the same latency, and an average over
such graphs would hide differences on the others. So the statistics cover the graphs with headroom,
then all graphs.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import statistics, units
from placement.reporting.statistics import Interval
from placement.reporting.tables import comparison, grids

WITH_ROOM = 0.97  # the largest ratio that counts as headroom
_LEGEND = (
    "A score is a run's latency over the best known one of its graph. Here are interquartile means "
    "of the scores of all runs: less is better, 1 is the best known. In brackets: the 95% interval "
    "of a bootstrap that resamples the runs of each graph, from five runs of a graph on "
    "(Agarwal et al., NeurIPS 2021)."
)
_IMPROVEMENT_LEGEND = (
    "How likely a run of the row's method is faster than one of the column's, ties counting half: "
    "a mean over the graphs; bold where the whole interval is above a half."
)


class Room(NamedTuple):
    """The possible gain on a graph."""

    best_s: float  # the best known latency; inf where nothing runs
    method: str  # the first method that found it
    single_s: float  # of the best single device; inf where none runs

    @property
    def ratio(self) -> float:
        """The headroom: below 1 where a method beats the best single device."""
        return units.ratio(self.best_s, self.single_s)


class Scope(NamedTuple):
    """Methods on some of the graphs, except methods that lack a run on any of them."""

    title: str
    graphs: tuple[str, ...]
    scores: dict[str, tuple[np.ndarray, ...]]  # method -> float64 [K] for the K runs of each graph
    means: dict[str, Interval]  # method -> interquartile mean, ascending
    improvement: dict[str, dict[str, Interval]]  # method -> other -> probability
    left_out: tuple[str, ...]


class Aggregates(NamedTuple):
    """Statistics of a whole comparison."""

    rooms: dict[str, Room]  # by graph
    scopes: tuple[Scope, ...]  # graphs with headroom, and all graphs unless these are the same


def aggregate(table: comparison.Comparison, paired: Sequence[str]) -> Aggregates:
    """Aggregates the runs of a comparison; the methods `paired` are compared in pairs.

    Graphs on which no method runs are left out.
    """
    rooms = {}
    for graph, cells in table.cells.items():
        best_s = {method: min(cell.runs_s) for method, cell in cells.items()}
        method = min(best_s, key=best_s.__getitem__)
        rooms[graph] = Room(best_s[method], method, best_s.get(comparison.SINGLE, math.inf))
    solved = tuple(graph for graph, room in rooms.items() if math.isfinite(room.best_s))
    with_room = tuple(graph for graph in solved if rooms[graph].ratio <= WITH_ROOM)
    graphs_by_title = {"graphs with room": with_room, "all graphs": solved}
    if with_room == solved:
        del graphs_by_title["all graphs"]
    scopes = [
        _scope(title, graphs, table, rooms, paired)
        for title, graphs in graphs_by_title.items()
        if graphs
    ]
    return Aggregates(rooms, tuple(scopes))


def data(aggregates: Aggregates) -> dict[str, Any]:
    """Returns the aggregates as `summary.json` holds them."""
    return {
        "graphs": {
            graph: {**room._asdict(), "room": room.ratio, "with_room": room.ratio <= WITH_ROOM}
            for graph, room in aggregates.rooms.items()
        },
        "scopes": {
            scope.title: {
                "graphs": scope.graphs,
                "interquartile_mean": {m: mean._asdict() for m, mean in scope.means.items()},
                "probability_of_improvement": {
                    method: {rival: interval._asdict() for rival, interval in intervals.items()}
                    for method, intervals in scope.improvement.items()
                },
                "left_out": scope.left_out,
            }
            for scope in aggregates.scopes
        },
    }


def markdown(aggregates: Aggregates) -> str:
    """Writes a Markdown section: the headroom of each graph, then methods over all runs."""
    parts = ["### How much room the graphs have", _rooms(aggregates.rooms), _counted(aggregates)]
    if aggregates.scopes:
        parts += ["### Methods over all runs", _means(aggregates.scopes), _LEGEND]
    for scope in aggregates.scopes:
        parts += [f"### Probability of improvement, {scope.title}", _improvement(scope)]
        if scope.left_out:
            names = ", ".join(f"`{method}`" for method in scope.left_out)
            parts.append(f"Left out of {scope.title}, without a run on some of them: {names}.")
    if any(scope.improvement for scope in aggregates.scopes):
        parts.append(_IMPROVEMENT_LEGEND)
    return "\n\n".join(parts)


def _scope(
    title: str,
    graphs: tuple[str, ...],
    table: comparison.Comparison,
    rooms: dict[str, Room],
    paired: Sequence[str],
) -> Scope:
    def score(graph: str, method: str) -> np.ndarray:
        runs_s, best_s = table.cells[graph][method].runs_s, rooms[graph].best_s
        # Further decimals are float32 rounding.
        return np.round([units.ratio(run_s, best_s) for run_s in runs_s], decimals=5)

    scores = {
        method: tuple(score(graph, method) for graph in graphs)
        for method in table.methods
        if all(method in table.cells[graph] for graph in graphs)
    }
    means = {method: statistics.interquartile_mean(runs) for method, runs in scores.items()}
    ranked = dict(sorted(means.items(), key=lambda item: item[1].value))
    improvement: dict[str, dict[str, Interval]] = {}
    for method, rival in itertools.permutations([m for m in paired if m in scores], 2):
        if any(len(runs) > 1 for runs in scores[method] + scores[rival]) or len(graphs) > 1:
            improvement.setdefault(method, {})[rival] = statistics.probability_of_improvement(
                scores[method], scores[rival]
            )
    left_out = tuple(method for method in table.methods if method not in scores)
    return Scope(title, graphs, scores, ranked, improvement, left_out)


def _rooms(rooms: dict[str, Room]) -> str:
    header = ("graph", comparison.SINGLE, "best known", "room", "found by")
    rows = []
    for graph, room in rooms.items():
        unit = units.latency_unit((room.best_s, room.single_s))
        is_solved = math.isfinite(room.best_s)
        texts = (f"{room.ratio:.3f}", room.method) if is_solved else (units.NONE, units.NONE)
        latencies = unit.write(room.single_s), unit.write(room.best_s)
        rows.append([f"{graph}, {unit.name}", *latencies, *texts])
    return grids.markdown(header, rows, numeric=(False, True, True, True, False))


def _counted(aggregates: Aggregates) -> str:
    """Writes which graphs have headroom, and on which no method runs."""
    solved = {g: room for g, room in aggregates.rooms.items() if math.isfinite(room.best_s)}
    flat_graphs = [f"`{graph}`" for graph, room in solved.items() if room.ratio > WITH_ROOM]
    text = (
        "Room: the best known latency, of any method and seed, over that of the best single "
        f"device; a graph has room where it is at most {WITH_ROOM}: "
        f"{len(solved) - len(flat_graphs)} of {len(aggregates.rooms)}."
    )
    if flat_graphs:
        text += f" Without room: {', '.join(flat_graphs)}."
    unsolved = [f"`{graph}`" for graph in aggregates.rooms if graph not in solved]
    return text + (f" Nothing runs on: {', '.join(unsolved)}." if unsolved else "")


def _means(scopes: Sequence[Scope]) -> str:
    """Writes the means, one column for each scope, sorted by the first scope."""
    methods = dict.fromkeys(itertools.chain.from_iterable(scope.means for scope in scopes))
    rows = [[method] for method in methods]
    for scope in scopes:
        best = next(iter(scope.means.values())).value if scope.means else math.nan
        for row in rows:
            mean = scope.means.get(row[0])
            text = units.NONE if mean is None else mean.write()
            is_best = mean is not None and mean.value == best and not math.isnan(mean.low)
            row.append(grids.BOLD_MARKDOWN.format(text) if is_best else text)
    return grids.markdown(
        ["method", *(f"{scope.title} ({len(scope.graphs)})" for scope in scopes)], rows
    )


def _improvement(scope: Scope) -> str:
    if not scope.improvement:
        return "No probabilities: they need several runs of at least two methods."
    methods, rows = tuple(scope.improvement), []
    for method, intervals in scope.improvement.items():
        row = [method]
        for interval in map(intervals.get, methods):
            text = "" if interval is None else interval.write(2)
            is_likely = interval is not None and interval.low > 0.5
            row.append(grids.BOLD_MARKDOWN.format(text) if is_likely else text)
        rows.append(row)
    return grids.markdown(["over", *methods], rows)
