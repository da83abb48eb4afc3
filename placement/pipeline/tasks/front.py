"""The `front` task: placements that none beats in latency, throughput and memory.

Writes front.json, and front/point-N.json, a placement of each, which --task=deploy takes with
--config.point=N. The few at the knees are measured, beside what OpenVINO does without placing: the
latency of a request alone, and the seconds that each request of a stream adds.
"""

import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from placement import files
from placement.pipeline import loading, method_runs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, interrupts, metrics, progress
from placement.pipeline.results import figures, outputs
from placement.pipeline.settings import Settings
from placement.reporting import runs, units, words
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Measure, Measurement
from placement.search import front as front_lib
from placement.solvers.limits import SearchLimits

FILE, FOLDER = "front.json", "front"
_LATENCY, _STREAM = "makespan", "max_load"
_ROUNDS = 10


class _Opened(NamedTuple):
    """A model on devices, with costs."""

    settings: Settings
    target: target_lib.Target
    problems: dict[str, loading.SearchProblem]  # by objective


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Searches for the front, and measures its knees.

    Returns:
      What front.json holds.

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    # Streams and latencies are of devices that work at the same time.
    settings = _asked(settings, _LATENCY)
    loading.check(settings)
    target = target_lib.find(settings)
    workdirs.claim(workdir, display, [settings.graph])
    with (
        faults.told_last() as kept,
        target_lib.opened(target, settings, workdir, display) as opened,
    ):
        target, costs, measurer, conditions = opened
        problems = {
            objective: loading.search_problem(target.net, costs, target.names, objective)
            for objective in (_LATENCY, _STREAM)
        }
        model = _Opened(settings, target, problems)
        found = _searched(model, workdir, display)
        told = _told(model, found)
        _write(model, found, told, workdir)
        if measurer is not None and settings.evaluate != "simulate" and told["points"]:
            with kept.during("measuring"), display.phase("measuring"):
                _measure(model, found, told, measurer)
            runs.write_json(workdir / FILE, told)
    outputs.write(workdir, outputs.provenance(settings, target, conditions))
    words.show(_table(told), display.console)
    for line in _lines(told, workdir):
        display.result(line)
    figures.of_front(told, workdir, display.console, kept)
    return told


def _asked(settings: Settings, objective: str) -> Settings:
    return dataclasses.replace(settings, backend="concurrent", objective=objective)


def _searched(model: _Opened, workdir: Path, display: progress.Display) -> front_lib.Front:
    """Searches until the limits, or until the first Ctrl-C."""
    settings, stop = model.settings, threading.Event()
    goal = progress.Goal(settings.budget, settings.time_limit_s)
    with (
        interrupts.asked(display, stop),
        display.phase("searching the front", goal) as phase,
        metrics.Log(workdir, "front", settings.seed) as log,
    ):
        shown = metrics.SolverMetrics(log, phase)

        def observe(evaluations: int, best_s: float, _: Any, numbers: Mapping[str, float]) -> None:
            shown.observe(evaluations, best_s, numbers)

        limits = SearchLimits(settings.time_limit_s, settings.budget, observe, stop.is_set)
        return front_lib.find(model.problems[_LATENCY].coarse, settings.seed, limits)


def _told(model: _Opened, found: front_lib.Front) -> dict[str, Any]:
    """Returns front.json, without what is measured."""
    values = found.archive.values
    knees = front_lib.knees(values) if len(values) else []
    return {
        "graph": model.target.net.graph.name,
        "devices": list(model.target.labels),
        "axes": list(front_lib.AXES),
        "bounds": dict(zip(front_lib.AXES, found.bounds.tolist(), strict=True)),
        "status": found.status.describe(found.reason),
        "evaluations": found.evaluations,
        "points": [
            {"number": i + 1, **dict(zip(front_lib.AXES, row, strict=True)), "knee": i in knees}
            for i, row in enumerate(values.tolist())
        ],
        "measured": [],
    }


def _write(model: _Opened, found: front_lib.Front, told: dict[str, Any], workdir: Path) -> None:
    """Writes front.json, and the placement of every point in place of those of before."""
    problem, target = model.problems[_LATENCY], model.target
    folder = workdir / FOLDER
    files.remove_files(folder, [point_file("*")])
    runs.make_folder(folder)
    for row, point in zip(found.archive.placement, told["points"], strict=True):
        candidate = loading.candidate(problem, row, target.present, model.settings.backend)
        provenance = outputs.origin(target, _LATENCY, model.settings.seed) | {"row": point}
        placed: dict[str, Any] = {"method": "front", "placement": loading.affinity(problem, row)}
        if candidate.segments is not None:
            placed["segments"] = candidate.segments
        file = folder / point_file(point["number"])
        runs.write_json(file, placed | {"provenance": provenance})
    runs.write_json(workdir / FILE, told)


def point_file(number: int | str) -> str:
    """Returns the name of a point's placement, in `FOLDER`."""
    return f"point-{number}.json"


def _measure(
    model: _Opened, found: front_lib.Front, told: dict[str, Any], measurer: Measurer
) -> None:
    """Measures knees, single devices and references, each alone and in a stream; adds rows."""
    rows: dict[str, dict[str, Any]] = {}
    for key, objective in (("latency", _LATENCY), ("stream", _STREAM)):
        candidates = {f"single:{d.name}": Candidate(None, (d,)) for d in model.target.present}
        references = target_lib.find(_asked(model.settings, objective)).references
        candidates |= {e.method: e.candidates[0] for e in method_runs.references(references)}
        for point in told["points"]:
            if point["knee"]:
                row = found.archive.placement[point["number"] - 1]
                candidates[f"point {point['number']}"] = loading.candidate(
                    model.problems[objective], row, measurer.devices, model.settings.backend
                )
        asked = Measure(list(candidates.values()), _ROUNDS, model.settings.measure_s / 2)
        for name, outcome in zip(candidates, measurer.ask(asked), strict=True):
            row_told = rows.setdefault(name, {"name": name.removeprefix("reference:")})
            if isinstance(outcome, Measurement):
                row_told[key] = outcome.latency._asdict()
            else:
                row_told[f"{key}_failed"] = f"{outcome.stage}: {outcome.cause}"
    told["measured"] = list(rows.values())


def _table(told: dict[str, Any]) -> Table:
    """The knees, and what is measured beside them."""
    table = Table(box=box.SIMPLE_HEAD)
    heads = ("predicted latency", "a request", "MB", "measured latency", "a request in a stream")
    table.add_column("point")
    for column in heads[: 5 if told["measured"] else 3]:
        table.add_column(column, justify="right")
    measured = {row["name"]: row for row in told["measured"]}
    for point in told["points"]:
        if point["knee"]:
            row = measured.pop(f"point {point['number']}", {})
            table.add_row(
                str(point["number"]),
                units.duration(point["latency_s"]),
                units.duration(point["request_s"]),
                f"{point['memory_bytes'] / 1e6:.1f}",
                *_medians(row)[: 2 if told["measured"] else 0],
            )
    if measured:
        table.add_section()
    for name, row in measured.items():
        table.add_row(words.Words(name), units.NONE, units.NONE, units.NONE, *_medians(row))
    return table


def _medians(row: Mapping[str, Any]) -> list[str]:
    return [
        units.duration(row[key]["median"]) if key in row else units.NONE
        for key in ("latency", "stream")
    ]


def _lines(told: dict[str, Any], workdir: Path) -> Iterator[str]:
    if not told["points"]:
        yield f"no placement can run: {told['status']}"
        return
    least = {axis: min(point[axis] for point in told["points"]) for axis in told["axes"]}
    for axis, name in zip(told["axes"], ("latency", "time a request"), strict=False):
        if math.isfinite(told["bounds"][axis]) and told["bounds"][axis] > 0:
            gap = least[axis] / told["bounds"][axis] - 1
            yield f"{name}: {units.duration(least[axis])} at best, {gap:z.1%} above the bound"
    measured = {row["name"]: row for row in told["measured"]}
    for key, name in (("latency", "latency"), ("stream", "throughput")):
        there = {n: row[key]["median"] for n, row in measured.items() if key in row}
        if there:
            first = min(there, key=there.__getitem__)
            points = {n: s for n, s in there.items() if n.startswith("point ")}
            best = min(points, key=points.__getitem__, default=None)
            beside = "" if best in (first, None) else f"; the best point is {best.split()[1]}, at "
            beside += f"{units.duration(points[best])}" if beside else ""
            yield f"best {name} as measured: {first}, {units.duration(there[first])}{beside}"
    yield f"{len(told['points'])} points: {workdir / FILE}"
    yield "deploy one: the same command with --task=deploy --config.point=NUMBER"
