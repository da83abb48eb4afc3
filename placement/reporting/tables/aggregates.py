"""Methods over all runs of a comparison: what single graphs and seeds say together.

A run's score is its latency over the best known one of its graph, by whatever method and seed:
lower is better, 1 is the best there is. `placement.reporting.statistics` says what is made of them.

A graph's room is its best known latency over that of the best single device. Where there is none,
all that starts from single devices finds the same, and averages would hide what differs elsewhere:
graphs with room are looked at by themselves, then all.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import statistics, units
from placement.reporting.statistics import Interval
from placement.reporting.tables import comparison, grids

WITH_ROOM = 0.97  # a graph's room at most
_DIGITS = 5  # of a score: more are rounding of float32
_EVEN = 0.5  # the probability of improvement of equals
_LEGEND = (
    "A score is a run's latency over the best known one of its graph. Here are interquartile means "
    "of the scores of all runs: less is better, 1 is the best known. In brackets: the 95% interval "
    "of a bootstrap that resamples the runs of each graph; none where every graph has one run "
    "(Agarwal et al., NeurIPS 2021)."
)
_IMPROVEMENT_LEGEND = (
    "How likely a run of the row's method is faster than one of the column's, ties counting half: "
    "a mean over the graphs; bold where the whole interval is above a half."
)


class Room(NamedTuple):
    """What there is to gain on a graph."""

    best_s: float  # the best known latency; inf where nothing runs
    method: str  # that found it, the first of equals
    single_s: float  # of the best single device; inf where none runs

    @property
    def ratio(self) -> float:
        """The room: below 1 where something is faster than the best single device."""
        return units.ratio(self.best_s, self.single_s)


class Scope(NamedTuple):
    """Methods on some of the graphs; those that lack a run on any of them are left out."""

    title: str
    graphs: tuple[str, ...]
    scores: dict[str, tuple[np.ndarray, ...]]  # method -> of each graph, float64 [K] of its K runs
    means: dict[str, Interval]  # method -> interquartile mean, ascending
    improvement: dict[str, dict[str, Interval]]  # method -> other -> probability
    left_out: tuple[str, ...]


class Aggregates(NamedTuple):
    """What is said of a comparison as a whole."""

    rooms: dict[str, Room]  # by graph
    scopes: tuple[Scope, ...]  # of graphs with room and of all; one where these are the same


def aggregate(found: comparison.Comparison, paired: Sequence[str]) -> Aggregates:
    """Aggregates the runs of a comparison; graphs on which nothing runs are of no scope.

    Args:
      found: the comparison.
      paired: the methods of which each is set against each other.
    """
    rooms = {graph: _room(cells) for graph, cells in found.cells.items()}
    known = tuple(graph for graph, room in rooms.items() if math.isfinite(room.best_s))
    with_room = tuple(graph for graph in known if rooms[graph].ratio <= WITH_ROOM)
    chosen = {"graphs with room": with_room, "all graphs": known}
    if with_room == known:
        del chosen["all graphs"]
    scopes = [
        _scope(title, graphs, found, rooms, paired) for title, graphs in chosen.items() if graphs
    ]
    return Aggregates(rooms, tuple(scopes))


def data(aggregates: Aggregates) -> dict[str, Any]:
    """Returns what `summary.json` holds of them."""
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
                    method: {other: each._asdict() for other, each in others.items()}
                    for method, others in scope.improvement.items()
                },
                "left_out": scope.left_out,
            }
            for scope in aggregates.scopes
        },
    }


def markdown(aggregates: Aggregates) -> str:
    """Writes a Markdown section: the room of each graph, then methods over all runs."""
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


def _room(cells: dict[str, comparison.Cell]) -> Room:
    best_s = {method: min(cell.runs_s) for method, cell in cells.items()}
    method = min(best_s, key=best_s.__getitem__)
    return Room(best_s[method], method, best_s.get(comparison.SINGLE, math.inf))


def _scope(
    title: str,
    graphs: tuple[str, ...],
    found: comparison.Comparison,
    rooms: dict[str, Room],
    paired: Sequence[str],
) -> Scope:
    scores = {
        method: tuple(_scores(found.cells[graph][method], rooms[graph].best_s) for graph in graphs)
        for method in found.methods
        if all(method in found.cells[graph] for graph in graphs)
    }
    means = {method: statistics.interquartile_mean(of) for method, of in scores.items()}
    ranked = dict(sorted(means.items(), key=lambda item: item[1].value))
    improvement: dict[str, dict[str, Interval]] = {}
    for method, other in itertools.permutations([m for m in paired if m in scores], 2):
        if any(len(runs) > 1 for runs in scores[method] + scores[other]) or len(graphs) > 1:
            improvement.setdefault(method, {})[other] = statistics.probability_of_improvement(
                scores[method], scores[other]
            )
    left_out = tuple(method for method in found.methods if method not in scores)
    return Scope(title, graphs, scores, ranked, improvement, left_out)


def _scores(cell: comparison.Cell, best_s: float) -> np.ndarray:
    return np.round([units.ratio(run_s, best_s) for run_s in cell.runs_s], _DIGITS)


def _rooms(rooms: dict[str, Room]) -> str:
    header = ("graph", comparison.SINGLE, "best known", "room", "found by")
    rows = []
    for graph, room in rooms.items():
        unit = units.of_latencies((room.best_s, room.single_s))
        known = math.isfinite(room.best_s)
        texts = (f"{room.ratio:.3f}", room.method) if known else (units.NONE, units.NONE)
        latencies = unit.write(room.single_s), unit.write(room.best_s)
        rows.append([f"{graph}, {unit.name}", *latencies, *texts])
    return grids.markdown(header, rows, numeric=(False, True, True, True, False))


def _counted(aggregates: Aggregates) -> str:
    """Says which graphs have room, and which nothing is said of."""
    known = {g: room for g, room in aggregates.rooms.items() if math.isfinite(room.best_s)}
    without = [f"`{graph}`" for graph, room in known.items() if room.ratio > WITH_ROOM]
    text = (
        "Room: the best known latency, by whatever method and seed, over that of the best single "
        f"device; a graph has room where it is at most {WITH_ROOM}: {len(known) - len(without)} of "
        f"{len(aggregates.rooms)}."
    )
    if without:
        text += f" Without room: {', '.join(without)}."
    unknown = [f"`{graph}`" for graph in aggregates.rooms if graph not in known]
    return text + (f" Nothing runs on: {', '.join(unknown)}." if unknown else "")


def _means(scopes: Sequence[Scope]) -> str:
    """Writes the means, a column a scope, by those of the first."""
    methods = dict.fromkeys(itertools.chain.from_iterable(scope.means for scope in scopes))
    rows = [[method, *(_mean(scope, method) for scope in scopes)] for method in methods]
    return grids.markdown(["method", *map(_titled, scopes)], rows)


def _titled(scope: Scope) -> str:
    return f"{scope.title} ({len(scope.graphs)})"


def _mean(scope: Scope, method: str) -> str:
    if method not in scope.means:
        return units.NONE
    text = _text(scope.means[method], 3)
    best = scope.means[method].value == next(iter(scope.means.values())).value
    return grids.BOLD_MARKDOWN.format(text) if best else text


def _improvement(scope: Scope) -> str:
    if not scope.improvement:
        return "Nothing to tell: it takes several runs of two methods that are set side by side."
    methods = tuple(scope.improvement)
    rows = [[m, *(_probability(scope.improvement[m].get(o)) for o in methods)] for m in methods]
    return grids.markdown(["over", *methods], rows)


def _probability(found: Interval | None) -> str:
    if found is None:
        return ""
    text = _text(found, 2)
    return grids.BOLD_MARKDOWN.format(text) if found.low > _EVEN else text


def _text(found: Interval, decimals: int) -> str:
    if not math.isfinite(found.value):
        return units.NONE
    text = f"{found.value:.{decimals}f}"
    if math.isnan(found.low):
        return text
    return f"{text} [{found.low:.{decimals}f}, {found.high:.{decimals}f}]"
