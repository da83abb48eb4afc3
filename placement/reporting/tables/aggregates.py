"""Methods over all runs of a comparison: statistics over graphs and seeds.

A run's score is its latency over the best known one of its graph, of any method and seed: lower is
better, 1 equals the best known. `placement.reporting.statistics` defines the statistics.

A graph's *room* is its best known latency over that of the best single device. Without room, every
method that starts from single devices finds the same latency, and an average over such graphs would
hide differences on the others. So the statistics cover the graphs with room, or all graphs where
none has any.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import statistics, units
from placement.reporting.statistics import Interval
from placement.reporting.tables import comparison, grids

WITH_ROOM = 0.97  # the largest ratio that counts as room
_LEGEND = (
    "A score is a run's latency over the best known one of its graph. Here are interquartile means "
    "of the scores of all runs: less is better, 1 is the best known. In brackets: the 95% interval "
    "of a bootstrap that resamples the runs of each graph, from five runs of a graph on "
    "(Agarwal et al., NeurIPS 2021). The other columns say how likely a run of the row's method is "
    "faster than one of the column's, ties counting half: a mean over the graphs, in bold where "
    "the whole interval is above a half."
)


class Room(NamedTuple):
    """The possible gain on a graph."""

    best_s: float  # the best known latency; inf where nothing runs
    method: str  # the first method that found it
    single_s: float  # of the best single device; inf where none runs

    @property
    def ratio(self) -> float:
        """Below 1 where a method beats the best single device."""
        return units.ratio(self.best_s, self.single_s)


class Aggregates(NamedTuple):
    """Statistics of a comparison over some of its graphs.

    Methods without a run on one of them are left out.
    """

    rooms: dict[str, Room]  # by graph, of all graphs
    title: str
    graphs: tuple[str, ...]
    means: dict[str, Interval]  # method -> interquartile mean, ascending
    improvement: dict[str, dict[str, Interval]]  # method -> other -> probability
    left_out: tuple[str, ...]


def aggregate(table: comparison.Comparison, paired: Sequence[str]) -> Aggregates:
    """Aggregates the runs of a comparison; the methods `paired` are compared in pairs."""
    rooms = {}
    for graph, cells in table.cells.items():
        best_s = {method: min(cell.runs_s) for method, cell in cells.items()}
        method = min(best_s, key=best_s.__getitem__)
        rooms[graph] = Room(best_s[method], method, best_s.get(comparison.SINGLE, math.inf))
    solved = tuple(graph for graph, room in rooms.items() if math.isfinite(room.best_s))
    with_room = tuple(graph for graph in solved if rooms[graph].ratio <= WITH_ROOM)
    graphs = with_room or solved
    scores = {  # method -> float64 [K] for the K runs of each graph
        method: [
            # Further decimals are float32 rounding.
            np.round(
                [units.ratio(s, rooms[graph].best_s) for s in table.cells[graph][method].runs_s], 5
            )
            for graph in graphs
        ]
        for method in table.methods
        if graphs and all(method in table.cells[graph] for graph in graphs)
    }
    means = {method: statistics.interquartile_mean(runs) for method, runs in scores.items()}
    improvement: dict[str, dict[str, Interval]] = {}
    for method, rival in itertools.permutations([m for m in paired if m in scores], 2):
        if any(len(runs) > 1 for runs in scores[method] + scores[rival]) or len(graphs) > 1:
            improvement.setdefault(method, {})[rival] = statistics.probability_of_improvement(
                scores[method], scores[rival]
            )
    return Aggregates(
        rooms,
        "graphs with room" if with_room else "all graphs",
        graphs,
        dict(sorted(means.items(), key=lambda item: item[1].value)),
        improvement,
        tuple(method for method in table.methods if method not in scores) if graphs else (),
    )


def data(aggregates: Aggregates) -> dict[str, Any]:
    """Returns the aggregates as `summary.json` holds them."""
    scope = {
        "graphs": aggregates.graphs,
        "interquartile_mean": {m: mean._asdict() for m, mean in aggregates.means.items()},
        "probability_of_improvement": {
            method: {rival: interval._asdict() for rival, interval in intervals.items()}
            for method, intervals in aggregates.improvement.items()
        },
        "left_out": aggregates.left_out,
    }
    return {
        "graphs": {
            graph: {**room._asdict(), "room": room.ratio, "with_room": room.ratio <= WITH_ROOM}
            for graph, room in aggregates.rooms.items()
        },
        "scopes": {aggregates.title: scope} if aggregates.graphs else {},
    }


def markdown(aggregates: Aggregates) -> str:
    """Writes a Markdown section: which graphs have room, and the methods over all runs."""
    rooms = aggregates.rooms
    solved = {graph: room for graph, room in rooms.items() if math.isfinite(room.best_s)}
    flat = [graph for graph, room in solved.items() if room.ratio > WITH_ROOM]
    text = (
        "A graph has room where its best known latency, of any method and seed, is at most "
        f"{WITH_ROOM} of that of the best single device: {len(solved) - len(flat)} of {len(rooms)}."
    )
    text += f" Without room: {grids.listed(flat)}." if flat else ""
    unsolved = [graph for graph in rooms if graph not in solved]
    text += f" Nothing runs on: {grids.listed(unsolved)}." if unsolved else ""
    parts = ["### Methods over all runs", text]
    if not aggregates.graphs:
        return "\n\n".join(parts)
    rivals = tuple(aggregates.improvement)
    title = f"{aggregates.title} ({len(aggregates.graphs)})"
    table = grids.Grid(["method", title, *(f"faster than {rival}" for rival in rivals)])
    lowest = next(iter(aggregates.means.values())) if aggregates.means else None
    for method, mean in aggregates.means.items():
        is_best = lowest and mean.value == lowest.value and not math.isnan(mean.low)
        row = [grids.bold(mean.write()) if is_best else mean.write()]
        for rival in rivals:
            interval = aggregates.improvement.get(method, {}).get(rival)
            text = "" if interval is None else interval.write(2)
            row.append(grids.bold(text) if interval and interval.low > 0.5 else text)
        table.add_row(method, *row)
    parts += [table.markdown(), _LEGEND]
    if aggregates.left_out:
        parts.append(
            f"Left out, without a run on some of them: {grids.listed(aggregates.left_out)}."
        )
    return "\n\n".join(parts)
