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
from collections.abc import Mapping, Sequence
from typing import Any

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


def aggregate(table: comparison.Comparison, paired: Sequence[str]) -> dict[str, Any]:
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
        single_s = best_s.get(comparison.SINGLE, math.inf)
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
    means = {method: statistics.interquartile_mean(runs) for method, runs in scores.items()}
    improvement: dict[str, dict[str, Any]] = {}
    for method, rival in itertools.permutations([m for m in paired if m in scores], 2):
        ours, theirs = scores[method], scores[rival]
        if len(selected) > 1 or any(len(runs) > 1 for runs in ours + theirs):
            faster = statistics.probability_of_improvement(ours, theirs)
            improvement.setdefault(method, {})[rival] = faster._asdict()
    scope = {
        "graphs": selected,
        "interquartile_mean": {
            method: mean._asdict()
            for method, mean in sorted(means.items(), key=lambda item: item[1].value)
        },
        "probability_of_improvement": improvement,
        "left_out": [method for method in table.methods if method not in scores],
    }
    return {"graphs": graphs, "scopes": {"graphs with room" if with_room else "all graphs": scope}}


def markdown(results: Mapping[str, Any]) -> str:
    """Writes a Markdown section of the statistics: which graphs have room, and the methods."""

    def write(interval: Mapping[str, float | None], decimals: int) -> str:
        return Interval(*map(units.or_nan, interval.values())).write(decimals)

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
        means, improvement = scope["interquartile_mean"], scope["probability_of_improvement"]
        headers = (f"faster than {rival}" for rival in improvement)
        table = grids.Grid(["method", f"{title} ({len(scope['graphs'])})", *headers])
        for method, mean in means.items():
            is_lowest = mean["value"] == next(iter(means.values()))["value"]
            is_best = is_lowest and units.number(mean["low"]) is not None
            row = [grids.bold(write(mean, 3)) if is_best else write(mean, 3)]
            for rival in improvement:
                faster = improvement.get(method, {}).get(rival)
                text = write(faster, 2) if faster else ""
                is_faster = faster and units.or_nan(faster["low"]) > 0.5
                row.append(grids.bold(text) if is_faster else text)
            table.add_row(method, *row)
        parts += [table.markdown(), _LEGEND]
        if scope["left_out"]:
            omitted = grids.listed(scope["left_out"])
            parts.append(f"Left out, without a run on some of them: {omitted}.")
    return "\n\n".join(parts)
