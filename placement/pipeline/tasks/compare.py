"""The `compare` task: methods, graphs and seeds in one table, the same budget for all.

A cell, one graph with one seed, is a run directory of its own, `cells/GRAPH/seed-K`; which graphs
are the same `placement.pipeline.graph_labels` says. In simulation, methods that no seed changes are of each
graph's first cell alone. A cell that is finished is not run again, so that the same command goes on
after an interruption, and a list may grow.

With `measure_on=ray` the cells that are left are spread over the hosts of a cluster, one at a time
on each. A cell runs there as it would here, from a copy of its run directory, which comes back when
the cell is finished.
"""

import contextlib
import itertools
import json
import math
import re
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax

from placement import arguments, files
from placement.errors import UserError
from placement.pipeline import checkpoints, graph_labels, loading, method_runs, workdirs
from placement.pipeline.console import faults, progress
from placement.pipeline.distributed import hosts
from placement.pipeline.results import bounds, outputs
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import place, report
from placement.reporting import runs, units
from placement.reporting.tables import aggregates
from placement.runtime.cluster.pool import Job, Pool
from placement.runtime.errors import RemoteFaultError

# What the list of cells depends on, and no cell itself.
_NOT_OF_A_CELL = ("graphs", "methods", "seeds", "measure_on")
_FINISHED = "asked.json"
_CONFIG = "config.json"
_REST_S = 600.0  # of a cell, beside its searches and its table: compiling and profiling


class _Cell(NamedTuple):
    """A graph with a seed."""

    settings: Settings
    label: str  # of the graph
    directory: Path
    chosen: tuple[str, ...]
    beside: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.settings.seed}"

    def asked(self) -> dict[str, Any]:
        """Returns what a cell has to have been asked for to be finished."""
        essence = _essence(self.settings)
        return {
            "methods": [*self.beside, *self.chosen],
            "config": essence | {"graph": graph_labels.identity(self.settings.graph)},
            "content": graph_labels.content(self.settings.graph),
        }

    def is_finished(self, display: progress.Display) -> bool:
        """Whether there is a summary of just this; what cannot be read is set aside."""
        finished = self.directory / _FINISHED
        if not finished.exists():
            return False
        now, then = self.asked(), checkpoints.readable(finished, _read_asked, display)
        # A cell of an earlier version does not say what its model held.
        if then is None or {"content": now["content"]} | then != now:
            return False
        path = self.directory / runs.SUMMARY
        return path.exists() and checkpoints.readable(path, _read_summary, display) is not None

    def summary(self) -> dict[str, Any]:
        return runs.read_summary(self.directory)


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Runs every cell that is not finished yet, then reports on all.

    Returns:
      The summary, as written to summary.json: rows carry their graph and seed.

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    started = time.monotonic()
    chosen, beside = _methods(settings)
    if settings.seeds < 1:
        raise UserError(f"seeds={settings.seeds} leaves nothing to run; give seeds > 0")
    loading.check(settings)
    for graph in _graphs(settings):
        loading.check_graph(graph)
    if settings.measure_on == "ray" and settings.costs and settings.evaluate != "simulate":
        raise UserError(
            f"costs={settings.costs!r}, but hosts profile for themselves what --task=compare "
            "measures on them; leave the costs out, or measure_on=ray"
        )
    workdirs.claim(workdir, display)
    cells = _cells(settings, workdir, chosen, beside)
    spread = _spread if settings.measure_on == "ray" else _in_turn
    summary: dict[str, Any] = {}
    with faults.told_last() as kept:
        found = spread(cells, workdir, display, kept)
        with report.reporting(kept, display):
            if found:
                summary = _summary(settings, [(cell, cell.summary()) for cell in found])
                summary["complete"] &= len(found) == len(cells)
                summary["wall_s"] = time.monotonic() - started
                _reported(settings, found, workdir, display, summary, kept)
    return summary


def _cells(
    settings: Settings, workdir: Path, chosen: tuple[str, ...], beside: tuple[str, ...]
) -> list[_Cell]:
    """Every graph with every seed; a graph that is spelt twice is one."""
    spelt = {graph_labels.identity(graph): graph for graph in _graphs(settings)}
    named = zip(spelt.values(), graph_labels.distinct([*spelt.values()]), strict=True)
    cells, lists = [], (chosen, beside)
    for (graph, label), number in itertools.product(named, range(settings.seeds)):
        of_cell = ConfigDict(settings.to_dict())
        of_cell.graph, of_cell.seed, of_cell.measure_on = graph, settings.seed + number, "here"
        directory = _directory(workdir / "cells", graph, f"seed-{of_cell.seed}")
        of_seed = [tuple(m for m in some if not number or _again(m, settings)) for some in lists]
        cells.append(_Cell(of_cell, label, directory, *of_seed))
    return cells


def _graphs(settings: Settings) -> tuple[str, ...]:
    return arguments.entries(settings.graphs or settings.graph)


def _again(method: str, settings: Settings) -> bool:
    """Whether a method runs with every seed, not with the first alone."""
    return method == "single" or settings.evaluate != "simulate" or method_runs.is_seeded(method)


def _directory(cells: Path, graph: str, seed: str) -> Path:
    """That of the graph's identity, or if there is one of an earlier version, which goes on."""
    before = cells / re.sub(r"[^\w.=-]+", "_", graph) / seed
    directory = cells / runs.file_name(graph_labels.identity(graph)) / seed
    if directory.exists() or not (before / _CONFIG).exists():
        return directory
    remedy = "remove it, and its cell runs anew"
    of_before = files.read_json(before / _CONFIG, {"graph": str}, remedy=remedy)["graph"]
    return before if graph_labels.identity(of_before) == graph_labels.identity(graph) else directory


def _read_asked(path: Path) -> dict[str, Any]:
    """Reads what a finished cell was asked for, its graph as its identity."""
    schema = {"methods": [str], "config": {"graph": str}, "content": files.Maybe((str, None))}
    asked = files.read_json(path, schema, remedy="remove it, and its cell runs anew")
    identity = graph_labels.identity(asked["config"]["graph"])
    return asked | {"config": asked["config"] | {"graph": identity}}


def _read_summary(path: Path) -> dict[str, Any]:
    return runs.read_summary(path.parent)


def _reported(
    settings: Settings,
    cells: list[_Cell],
    workdir: Path,
    display: progress.Display,
    summary: dict[str, Any],
    kept: faults.Faults,
) -> None:
    """Writes and prints what all cells found."""
    runs.write_json(workdir / _CONFIG, settings.to_dict())
    runs.write_json(workdir / runs.SUMMARY, summary)
    runs.write_json(
        workdir / report.CELLS,
        [
            {"directory": str(cell.directory.relative_to(workdir)), "graph": cell.label}
            for cell in cells
        ],
    )
    report.write_comparison(summary, workdir, display.console, kept)


def _methods(settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The methods asked for, and those that come beside them where they can run."""
    chosen = arguments.entries(settings.methods)
    beside = method_runs.NAMES if "all" in chosen else ("single",)
    chosen = tuple(method for method in chosen if method not in ("all", "single"))
    for method in chosen:
        method_runs.check(method, settings.objective)
    return chosen, beside


def _in_turn(
    cells: list[_Cell], workdir: Path, display: progress.Display, kept: faults.Faults
) -> list[_Cell]:
    """Runs the cells here, and returns those that have a summary: all, unless interrupted."""
    found = []
    for number, cell in enumerate(cells, 1):
        display.say(f"cell {number} of {len(cells)}: {cell.name}")
        with kept.during(f"running {cell.name}"):
            if cell.is_finished(display):
                display.say("finished before")
                found.append(cell)
                continue
            ran = _run(cell, workdir, display, kept)
            found.append(cell._replace(directory=ran.directory))
            if ran.interrupted:
                display.warn("interrupted: the same command goes on from here")
                break
    return found


def _run(cell: _Cell, workdir: Path, display: progress.Display, kept: faults.Faults) -> place.Run:
    """Runs a cell, which is finished if nothing went wrong."""
    before = len(kept)
    try:
        ran = place.run_methods(
            cell.settings,
            cell.directory,
            cell.chosen,
            kept,
            beside=cell.beside,
            known=workdir / bounds.FILE,
            display=display,
        )
    finally:
        workdirs.release(cell.directory)
        # Linux limits the mappings of a process, of which every compiled function has nine; with
        # none left, XLA crashes. Learners of the next cell compile their own.
        jax.clear_caches()
    if not ran.interrupted and len(kept) == before:
        runs.write_json(cell.directory / _FINISHED, cell.asked())
    return ran


def _spread(
    cells: list[_Cell], workdir: Path, display: progress.Display, kept: faults.Faults
) -> list[_Cell]:
    """Runs the cells on the hosts of a cluster; returns as `_in_turn` does.

    Only hosts of the same hardware measure, and simulated cells too keep to one host each, as the
    time of a search limits it.
    """
    found = [cell for cell in cells if cell.is_finished(display)]
    left = [cell for cell in cells if cell not in found]
    if not left:
        return cells
    choice = hosts.find()
    hosts.introduce(choice, display)
    runs.write_json(workdir / "environment.json", outputs.environment() | hosts.record(choice))
    display.say(f"cells: {len(found)} of {len(cells)} finished before")
    with Pool(choice.hosts, contextlib.nullcontext, (), display.warn) as pool:
        try:
            answers = pool.run([_job(cell, workdir) for cell in left])
            for count, (number, (content, known, tracebacks)) in enumerate(answers, 1):
                cell = left[number]
                _take_back(cell, content)
                bounds.merge(workdir / bounds.FILE, known)
                found += [cell] if runs.SUMMARY in content else []
                for text in tracebacks:
                    kept.add(RemoteFaultError(text), f"running {cell.name} on a host")
                display.say(f"cell {count} of {len(left)} finished: {cell.name}")
        except KeyboardInterrupt:
            if not found:
                raise
            display.warn("interrupted: the same command goes on from here")
    return [cell for cell in cells if cell in found]


def _job(cell: _Cell, workdir: Path) -> Job:
    """Late when it has taken twice what its searches and its table may."""
    settings = cell.settings
    searches = len(cell.chosen) + len(cell.beside)
    known = bounds.read(workdir / bounds.FILE)
    return Job(
        f"the cell {cell.name}",
        _away,
        (settings.to_dict(), cell.chosen, cell.beside, _packed(cell.directory), known),
        deadline_s=2 * (searches * settings.time_limit_s + settings.measure_s) + _REST_S,
    )


def _away(
    _: None,
    settings: dict[str, Any],
    chosen: tuple[str, ...],
    beside: tuple[str, ...],
    content: dict[str, bytes],
    known: dict[str, list[float]],
) -> tuple[dict[str, bytes], dict[str, list[float]], list[str]]:
    """On a host: runs a cell from the files of its run directory.

    Returns:
      What the files became, the bounds then known, and the tracebacks of faults.
    """
    kept = faults.Faults()
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder)
        label = graph_labels.shortest(settings["graph"])
        cell = _Cell(ConfigDict(settings), label, workdir / "cell", chosen, beside)
        bounds.merge(workdir / bounds.FILE, known)
        _unpack(cell.directory, content)
        with kept.during("running the cell"):
            _run(cell, workdir, progress.Display(progress.WARNING), kept)
        return _packed(cell.directory), bounds.read(workdir / bounds.FILE), kept.tracebacks()


def _take_back(cell: _Cell, content: dict[str, bytes]) -> None:
    """What says that the cell is finished is written when all the rest is there."""
    last = {name: data for name, data in content.items() if name == _FINISHED}
    _unpack(cell.directory, {name: content[name] for name in content.keys() - last})
    _unpack(cell.directory, last)


def _packed(directory: Path) -> dict[str, bytes]:
    """The files of a directory, if there is one, by their relative paths."""
    paths = (path for path in directory.rglob("*") if path.is_file() and path.name != workdirs.LOCK)
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def _unpack(directory: Path, content: dict[str, bytes]) -> None:
    for name, data in content.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        runs.write_bytes(directory / name, data)


def _essence(cell: Settings) -> dict[str, Any]:
    kept = {key: value for key, value in cell.to_dict().items() if key not in _NOT_OF_A_CELL}
    return json.loads(json.dumps(kept))


def _summary(settings: Settings, found: list[tuple[_Cell, dict[str, Any]]]) -> dict[str, Any]:
    summaries = [summary for _, summary in found]
    rows = [
        {**row, "graph": cell.label, "seed": summary["seed"]}
        for cell, summary in found
        for row in summary["rows"]
    ]
    of_label = {cell.label: {**told["graph"], "name": cell.label} for cell, told in found}
    graphs = [*of_label.values()]
    return {
        "graph": graphs[0]
        if len(graphs) == 1
        else {
            "name": ", ".join(graph["name"] for graph in graphs),
            "num_ops": sum(graph["num_ops"] for graph in graphs),
            "num_edges": sum(graph["num_edges"] for graph in graphs),
        },
        "devices": summaries[0]["devices"],
        "objective": settings.objective,
        "seed": settings.seed,
        "rows": rows,
        "statistics": aggregates.data(report.compared(rows)[1]),
        "best": _best(rows),
        "complete": all(summary.get("complete", True) for summary in summaries),
        "compute_s": sum(summary["compute_s"] for summary in summaries),
    }


def _best(rows: list[dict[str, Any]]) -> str | None:
    """The method of the lowest geometric mean, over graphs and seeds, of ratios to the best single.

    Among those that have one on every graph, if there are any; the first of equals, so single
    devices win ties.
    """
    logs: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if not row.get("reference"):
            ratio = units.number(row["versus_best_single_device"])
            of_graph = logs.setdefault(row["method"], {}).setdefault(row["graph"], [])
            of_graph.append(math.inf if not ratio else math.log(ratio))
    graphs = max(map(len, logs.values()))
    means = {
        method: sum(sum(of_graph) / len(of_graph) for of_graph in by_graph.values())
        for method, by_graph in logs.items()
        if len(by_graph) == graphs
    }
    return min((m for m in means if means[m] < math.inf), key=means.__getitem__, default=None)
