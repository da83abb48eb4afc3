"""The `front` task: the Pareto front of placements in latency, throughput and memory.

Writes front.json, and front/point-N.json with the placement of each point, which --task=deploy
takes with --config.point=N. The points at the knees of the front are measured, together with single
devices and OpenVINO's own modes: the latency of a request alone, and the time that each request of
a stream adds.
"""

import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from placement import files
from placement.errors import UserError
from placement.pipeline import loading, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.results import figures, outputs
from placement.pipeline.results import rows as rows_lib
from placement.pipeline.settings import Settings
from placement.reporting import runs, units, wrapped_text
from placement.reporting.figures import scatter_plots
from placement.reporting.tables import grids
from placement.runtime import devices
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import MIN_SAMPLES, Candidate, Measure, Measurement
from placement.runtime.models import variants
from placement.search import front as front_lib
from placement.solvers.limits import SearchLimits

FILE, FOLDER = "front.json", "front"
_LATENCY, _STREAM = "makespan", "max_load"


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Searches for the front, and measures its knees."""
    if len(variants.parse_weighted_shapes(settings.input_shapes)) > 1:
        raise UserError(
            f"--task=front takes one input shape; given input_shapes={settings.input_shapes!r}: "
            "give one of them, or use --task=place"
        )
    # The axes are about devices that work at the same time.
    settings = dataclasses.replace(settings, backend="concurrent", objective=_LATENCY)
    loading.check_settings(settings)
    target = target_lib.find_target(settings)
    stream_settings = dataclasses.replace(settings, objective=_STREAM)
    if target.present:  # load, one of the axes, is not defined for devices that share cores
        target = target_lib.find_target(stream_settings)
    loading.refuse_stateful_stream(stream_settings, target.net)
    workdirs.claim(workdir, display, [settings.graph])
    with (
        faults.raise_at_end() as task_faults,
        target_lib.open_target(target, settings, workdir, display) as opened,
    ):
        target, costs, measurer, conditions = opened
        problems = {
            objective: loading.make_search_problem(target.net, costs, target.names, objective)
            for objective in (_LATENCY, _STREAM)
        }
        result = _search(settings, problems[_LATENCY], workdir, display)
        record = _write(settings, target, problems[_LATENCY], result, workdir)
        if measurer is not None and settings.evaluate != "simulate" and record["points"]:
            with task_faults.during("measuring"), display.phase("measuring"):
                placements = result.archive.placement
                record["measured"] = _measure(
                    settings, target, problems, placements, record["points"], measurer
                )
            runs.write_json(workdir / FILE, record)
    outputs.write(workdir, outputs.provenance(settings, target, conditions))
    wrapped_text.print_table(_make_table(record), display.console)
    for line in _describe(record, workdir):
        display.result(line)
    drawings = {"front": lambda: scatter_plots.front(record)}
    figures.write(drawings, workdir, display.console, task_faults)
    return record


def _search(
    settings: Settings, problem: loading.SearchProblem, workdir: Path, display: progress.Display
) -> front_lib.Front:
    """Searches until the limits, or until the first Ctrl-C."""
    stop = threading.Event()
    goal = progress.Goal(settings.budget, settings.time_limit_s)
    with (
        progress.stop_on_interrupt(display, stop),
        display.phase("searching the front", goal) as phase,
        metrics.Log(workdir, "front", settings.seed) as log,
    ):
        observe = metrics.SolverMetrics(log, phase).observe
        limits = SearchLimits(settings.time_limit_s, settings.budget, observe, stop.is_set)
        return front_lib.search_front(problem.coarse, settings.seed, limits)


def _write(
    settings: Settings,
    target: target_lib.Target,
    problem: loading.SearchProblem,
    result: front_lib.Front,
    workdir: Path,
) -> dict[str, Any]:
    """Writes front.json and the placements, replacing earlier ones; returns front.json's data."""
    values = result.archive.values
    knees = front_lib.find_knees(values) if len(values) else []
    points = [
        {"number": i + 1, **dict(zip(front_lib.AXES, row, strict=True)), "knee": i in knees}
        for i, row in enumerate(values.tolist())
    ]
    folder = workdir / FOLDER
    files.remove_files(folder, [point_file("*")])
    runs.make_folder(folder)
    for row, point in zip(result.archive.placement, points, strict=True):
        candidate = loading.make_candidate(problem, row, target.present, settings.backend)
        provenance = outputs.origin(target, _LATENCY, settings.seed) | {"row": point}
        provenance["memory"] = outputs.describe_memory(problem.coarse, row)
        placed: dict[str, Any] = {
            "method": "front",
            "placement": loading.map_ops_to_devices(problem, row),
        }
        if candidate.segments is not None:
            placed["segments"] = candidate.segments
        file = folder / point_file(point["number"])
        runs.write_json(file, placed | {"provenance": provenance})
    record = {
        "graph": target.net.graph.name,
        "devices": list(target.labels),
        "axes": list(front_lib.AXES),
        "bounds": dict(zip(front_lib.AXES, result.bounds.tolist(), strict=True)),
        "status": result.status.describe(result.reason),
        "evaluations": result.evaluations,
        "points": points,
        "measured": [],
    }
    runs.write_json(workdir / FILE, record)
    return record


def point_file(number: int | str) -> str:
    """Returns the name of a point's placement file in `FOLDER`."""
    return f"point-{number}.json"


def _measure(
    settings: Settings,
    target: target_lib.Target,
    problems: dict[str, loading.SearchProblem],
    placements: np.ndarray,
    points: list[dict[str, Any]],
    measurer: Measurer,
) -> list[dict[str, Any]]:
    """Measures knees, single devices and references, each alone and in a stream; returns rows."""
    rows: dict[str, dict[str, Any]] = {}
    for key, objective in (("latency", _LATENCY), ("stream", _STREAM)):
        candidates = {f"single:{d.name}": Candidate(None, (d,)) for d in target.present}
        references = tuple(
            device
            for device in target.references
            if objective == _STREAM or not devices.is_throughput_reference(device)
        )
        candidates |= {e.method: e.candidates[0] for e in rows_lib.references(references)}
        for point in points:
            if point["knee"]:
                candidates[f"point {point['number']}"] = loading.make_candidate(
                    problems[objective],
                    placements[point["number"] - 1],
                    measurer.devices,
                    settings.backend,
                )
        request = Measure(list(candidates.values()), MIN_SAMPLES, settings.measure_s / 2)
        for name, outcome in zip(candidates, measurer.ask(request), strict=True):
            row = rows.setdefault(name, {"name": name.removeprefix("reference:")})
            if isinstance(outcome, Measurement):
                row[key] = outcome.latency._asdict()
            else:
                row[f"{key}_failed"] = f"{outcome.stage}: {outcome.cause}"
    return list(rows.values())


def _make_table(record: dict[str, Any]) -> Table:
    """Returns a table of the knees, and of the other measured rows below them."""
    has_measured = bool(record["measured"])
    heads = ("predicted latency", "per request", "MB", "measured latency", "per request, measured")
    table = grids.new_table("", ["point"], heads[: 5 if has_measured else 3])

    def medians(row: Mapping[str, Any]) -> list[str]:
        return [
            units.duration(row[key]["median"]) if key in row else units.NONE
            for key in ("latency", "stream")
        ]

    measured = {row["name"]: row for row in record["measured"]}
    for point in record["points"]:
        if point["knee"]:
            row = measured.pop(f"point {point['number']}", {})
            table.add_row(
                str(point["number"]),
                units.duration(point["latency_s"]),
                units.duration(point["request_s"]),
                f"{point['memory_bytes'] / 1e6:.1f}",
                *(medians(row) if has_measured else []),
            )
    if measured:
        table.add_section()
    for name, row in measured.items():
        table.add_row(
            wrapped_text.WrappedText(name), units.NONE, units.NONE, units.NONE, *medians(row)
        )
    return table


def _describe(record: dict[str, Any], workdir: Path) -> Iterator[str]:
    """Yields the lines below the table: gaps, the best measured rows, and the files."""
    if not record["points"]:
        yield f"no placement can run: {record['status']}"
        return
    for axis, name in zip(record["axes"], ("latency", "time per request"), strict=False):
        lowest, bound = min(point[axis] for point in record["points"]), record["bounds"][axis]
        if math.isfinite(bound) and bound > 0:
            gap = lowest / bound - 1
            yield f"lowest predicted {name}: {units.duration(lowest)}, {gap:z.1%} above the bound"
    for key, name in (("latency", "latency"), ("stream", "time per request")):
        medians = {row["name"]: row[key]["median"] for row in record["measured"] if key in row}
        if not medians:
            continue
        fastest = min(medians, key=medians.__getitem__)
        line = f"best measured {name}: {fastest}, {units.duration(medians[fastest])}"
        points = {n: s for n, s in medians.items() if n.startswith("point ")}
        best_point = min(points, key=points.__getitem__, default=fastest)
        if best_point != fastest:
            number = best_point.removeprefix("point ")
            line += f"; best point: {number}, {units.duration(points[best_point])}"
        yield line
    yield f"{len(record['points'])} points: {workdir / FILE}"
    yield "to deploy a point, run the same command with --task=deploy --config.point=NUMBER"
