"""The `compare` task: methods, graphs and seeds in one table, with the same budget for all.

A cell is one graph with one seed. It has its run directory, `cells/GRAPH/seed-K`;
`graph_labels` decides which graphs are the same. In simulation, methods that no seed changes run in
the first cell of each graph only. A finished cell is not run again, so that the same command
continues after an interruption, and the list of graphs, methods or seeds may grow.

With `measure_on=ray` the unfinished cells are spread over the hosts of a cluster, one at a time on
each. A cell runs there on a copy of its run directory, which comes back when the cell is finished.
"""

import contextlib
import dataclasses
import functools
import itertools
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from placement import arguments, files
from placement import methods as methods_lib
from placement.pipeline import (
    graph_labels,
    loading,
    method_runs,
    place,
    report,
    target,
    workdirs,
)
from placement.pipeline.console import faults, progress
from placement.pipeline.console.compilation_cache import limit_compiled
from placement.pipeline.results import bounds, outputs
from placement.pipeline.settings import Settings
from placement.reporting import runs, verdict
from placement.runtime import cluster
from placement.runtime.errors import RemoteFaultError

# The list of cells depends on these settings; a cell itself does not.
_NOT_OF_A_CELL = ("graphs", "methods", "seeds", "measure_on", "search_anyway")
_FINISHED = "asked.json"  # in a cell's directory once it is finished: the request that it answers


class _Cell(NamedTuple):
    """A graph with a seed."""

    settings: Settings
    label: str  # of the graph
    directory: Path
    methods: tuple[str, ...]  # that the user asked for
    extra: tuple[str, ...]  # that run before them

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.settings.seed}"

    def request(self) -> dict[str, Any]:
        """Returns everything that the results of the cell depend on."""
        config = {k: v for k, v in self.settings.to_dict().items() if k not in _NOT_OF_A_CELL}
        config |= {"graph": graph_labels.identity(self.settings.graph)}
        return {
            "methods": [*self.extra, *self.methods],
            "config": config,
            "content": graph_labels.content(self.settings.graph),
        }

    def is_finished(self, display: progress.Display) -> bool:
        """Whether there is a summary of just this request; an unreadable file is set aside."""
        if not (self.directory / _FINISHED).exists():
            return False
        remedy = "remove it, and its cell runs again"
        read_request = functools.partial(files.read_json, schema={str: object}, remedy=remedy)
        read, path = workdirs.readable, self.directory / runs.SUMMARY
        request = read(self.directory / _FINISHED, read_request, display)
        if request != self.request() or not path.exists():
            return False
        return read(path, lambda p: runs.read_summary(p.parent), display) is not None


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Runs every cell that is not finished yet, then reports on all.

    Rows of the summary carry their graph and seed.
    """
    started_s = time.monotonic()
    requested = arguments.split_list(settings.methods)
    methods = tuple(method for method in requested if method not in ("all", "single"))
    for method in methods:
        methods_lib.check(method, settings.objective)
    extra = tuple(m for m in methods_lib.METHODS if "all" in requested and m not in methods)
    # A method that is not installed is left out, so that a cell runs again once it is.
    methods = method_runs.installed(methods, display)
    extra = method_runs.installed(extra, display)
    loading.check_settings(settings)
    graphs = arguments.split_list(settings.graphs or settings.graph)
    for graph in graphs:
        loading.check_graph(graph)
    workdirs.claim(workdir, display, graphs)
    cells = _cells(settings, workdir, methods, extra)
    for cell in cells:
        files.refuse_link(cell.directory.parent)
        files.refuse_link(cell.directory)
    run_cells = _run_on_hosts if settings.measure_on == "ray" else _run_here
    summary: dict[str, Any] = {}
    with faults.raise_at_end() as fault_log:
        finished = run_cells(cells, workdir, display, fault_log)
        with report.abort_report_on_error(fault_log, display):
            if finished:
                summary = _summarise(settings, finished)
                summary["complete"] &= len(finished) == len(cells)
                summary["wall_s"] = time.monotonic() - started_s
                runs.write_json(workdir / "config.json", settings.to_dict())
                runs.write_json(workdir / runs.SUMMARY, summary)
                directories = [
                    {"directory": str(cell.directory.relative_to(workdir)), "graph": cell.label}
                    for cell in finished
                ]
                runs.write_json(workdir / report.CELLS, directories)
                report.write_comparison(summary, workdir, display.console, fault_log)
    return summary


def _cells(
    settings: Settings, workdir: Path, methods: tuple[str, ...], extra: tuple[str, ...]
) -> list[_Cell]:
    """Returns every graph with every seed; two spellings of a graph are one."""
    graphs = arguments.split_list(settings.graphs or settings.graph)
    distinct = [*{graph_labels.identity(graph): graph for graph in graphs}.values()]
    labelled = zip(distinct, graph_labels.distinct(distinct), strict=True)

    def repeats(method: str) -> bool:
        """Whether a method runs with every seed, not with the first alone."""
        return settings.evaluate != "simulate" or methods_lib.entry(method).seeded

    cells = []
    for (graph, label), index in itertools.product(labelled, range(settings.seeds)):
        seed = settings.seed + index
        cell_settings = dataclasses.replace(settings, graph=graph, seed=seed, measure_on="here")
        folder = runs.file_name(graph_labels.identity(graph))
        directory = workdir / "cells" / folder / f"seed-{seed}"
        lists = (tuple(m for m in names if not index or repeats(m)) for names in (methods, extra))
        cells.append(_Cell(cell_settings, label, directory, *lists))
    return cells


def _run_here(
    cells: list[_Cell], workdir: Path, display: progress.Display, fault_log: faults.Faults
) -> list[_Cell]:
    """Runs the cells here; returns those that have a summary: all, unless interrupted."""
    runs.write_json(workdir / "environment.json", outputs.environment())
    finished = []
    for number, cell in enumerate(cells, 1):
        display.say(f"cell {number} of {len(cells)}: {cell.name}")
        with fault_log.during(f"running {cell.name}"):
            if cell.is_finished(display):
                display.say("finished before")
                finished.append(cell)
                continue
            result = _run(cell, workdir, display, fault_log)
            finished.append(cell._replace(directory=result.directory))
            seconds, best = result.summary["wall_s"], result.summary["best"]
            display.say(f"cell {number} of {len(cells)} finished in {seconds:.1f} s; best: {best}")
            if result.interrupted:
                display.warn("interrupted: the same command continues from here")
                break
    return finished


def _run(
    cell: _Cell, workdir: Path, display: progress.Display, fault_log: faults.Faults
) -> place.Run:
    """Runs a cell, which is finished if nothing went wrong."""
    num_faults = len(fault_log)
    try:
        result = place.run_methods(
            cell.settings,
            cell.directory,
            cell.methods,
            fault_log,
            extra=cell.extra,
            bounds_file=workdir / bounds.FILE,
            display=display,
        )
    finally:
        workdirs.release(cell.directory)
        limit_compiled()
    if not result.interrupted and len(fault_log) == num_faults:
        runs.write_json(cell.directory / _FINISHED, cell.request())
    return result


def _run_on_hosts(
    cells: list[_Cell], workdir: Path, display: progress.Display, fault_log: faults.Faults
) -> list[_Cell]:
    """Runs the cells on the hosts of a cluster; returns as `_run_here` does.

    Only hosts of the same hardware measure. A simulated cell has a host to itself too, since time
    limits its searches.
    """
    finished = [cell for cell in cells if cell.is_finished(display)]
    remaining = [cell for cell in cells if cell not in finished]
    if not remaining:
        return cells
    choice = cluster.survey(target.describe_host)
    target.print_hosts(choice, display)
    runs.write_json(workdir / "environment.json", outputs.environment(choice))
    display.say(f"cells: {len(finished)} of {len(cells)} finished before")
    known_bounds = bounds.read(workdir / bounds.FILE)
    jobs = []
    for cell in remaining:
        run_cell = functools.partial(_run_on_host, cell, _pack(cell.directory), known_bounds)
        jobs.append(cluster.Job(f"the cell {cell.name}", run_cell))
    with cluster.Pool(choice.hosts, contextlib.nullcontext, display.warn) as pool:
        try:
            for count, (index, answer) in enumerate(pool.run(jobs), 1):
                content, known_bounds, tracebacks = answer
                cell = remaining[index]
                _unpack(cell.directory, content)
                bounds.merge(workdir / bounds.FILE, known_bounds)
                finished += [cell] if runs.SUMMARY in content else []
                for text in tracebacks:
                    fault_log.add(RemoteFaultError(text), f"running {cell.name} on a host")
                display.say(f"cell {count} of {len(remaining)} finished: {cell.name}")
        except KeyboardInterrupt:
            if not finished:
                raise
            display.warn("interrupted: the same command continues from here")
    return [cell for cell in cells if cell in finished]


def _run_on_host(
    cell: _Cell, content: dict[str, bytes], known_bounds: dict[str, list[float]], _: None
) -> tuple[dict[str, bytes], dict[str, list[float]], list[str]]:
    """Runs a cell from the files of its run directory, on a host.

    Returns:
      The current files, the known bounds, and the tracebacks of faults.
    """
    fault_log = faults.Faults()
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder)
        cell = cell._replace(directory=workdir / "cell")
        bounds.merge(workdir / bounds.FILE, known_bounds)
        _unpack(cell.directory, content)
        with fault_log.during("running the cell"):
            _run(cell, workdir, progress.Display(progress.WARNING), fault_log)
        known_bounds = bounds.read(workdir / bounds.FILE)
        tracebacks = ["".join(traceback.format_exception(error)) for error in fault_log]
        return _pack(cell.directory), known_bounds, tracebacks


def _pack(directory: Path) -> dict[str, bytes]:
    """Returns the files of a directory, if there is one, by their relative paths."""
    paths = (path for path in directory.rglob("*") if path.is_file() and path.name != workdirs.LOCK)
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def _unpack(directory: Path, content: dict[str, bytes]) -> None:
    # The file that says that the cell is finished comes last.
    for name in sorted(content, key=lambda name: name == _FINISHED):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(directory / name, content[name])


def _summarise(settings: Settings, cells: list[_Cell]) -> dict[str, Any]:
    cell_summaries = [(cell, runs.read_summary(cell.directory)) for cell in cells]
    rows = [
        {**row, "graph": cell.label, "seed": summary["seed"]}
        for cell, summary in cell_summaries
        for row in summary["rows"]
    ]
    by_label = {cell.label: {**s["graph"], "name": cell.label} for cell, s in cell_summaries}
    graphs = [*by_label.values()]
    combined = {
        "name": ", ".join(graph["name"] for graph in graphs),
        "num_ops": sum(graph["num_ops"] for graph in graphs),
        "num_edges": sum(graph["num_edges"] for graph in graphs),
    }
    if len(graphs) == 1:
        winner = verdict.decide(rows).winner
        best = winner and winner.method
    else:
        best = next(iter(verdict.rank(rows)), None)
    return {
        "graph": graphs[0] if len(graphs) == 1 else combined,
        "devices": cell_summaries[0][1]["devices"],
        "objective": settings.objective,
        "starts": settings.starts,
        "seed": settings.seed,
        "rows": rows,
        "statistics": report.aggregate(rows),
        "best": best,
        "complete": all(summary["complete"] for _, summary in cell_summaries),
        "compute_s": sum(summary["compute_s"] for _, summary in cell_summaries),
    }
