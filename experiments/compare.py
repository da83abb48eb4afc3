"""The `compare` task: methods, graphs and seeds in one table, the same budget for all.

A cell, one graph with one seed, is a run directory of its own, `cells/GRAPH/seed-K`. A cell that is
finished is not run again, so the same command goes on after an interruption, and a list may grow.
"""

import json
import math
import re
import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments import bounds, build, methods, place, progress, report
from placement import arguments
from placement.reporting import runs, tables

# What the list of cells depends on, and no cell itself.
_NOT_OF_A_CELL = ("graphs", "methods", "seeds")


def run(
    config: ConfigDict, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Runs every cell that is not finished yet, then reports on all.

    Returns:
      The summary, as written to summary.json: rows carry their graph and seed.

    Raises:
      ValueError: anything about the configuration that cannot be run, in one line.
    """
    started = time.monotonic()
    chosen, beside = _methods(config)
    graphs = arguments.entries(config.graphs or config.graph)
    if config.seeds < 1:
        raise ValueError(f"seeds={config.seeds} leaves nothing to run; give seeds > 0")
    build.check(config)
    cells = [(g, config.seed + s) for g in graphs for s in range(config.seeds)]
    summaries, directories = [], []
    for number, (graph, seed) in enumerate(cells, 1):
        display.say(f"cell {number} of {len(cells)}: {graph}, seed {seed}")
        cell = ConfigDict(config.to_dict())
        cell.graph, cell.seed = graph, seed
        directories.append(workdir / "cells" / re.sub(r"[^\w.=-]+", "_", graph) / f"seed-{seed}")
        summaries.append(_cell(cell, directories[-1], chosen, beside, workdir, display))
        if any(row["status"] == "interrupted" for row in summaries[-1]["rows"]):
            display.warn("interrupted: the same command goes on from here")
            break
    summary = _summary(config, summaries, time.monotonic() - started)
    runs.prepare_workdir(workdir)
    runs.write_json(workdir / "config.json", config.to_dict())
    runs.write_json(workdir / "summary.json", summary)
    runs.write_json(workdir / report.CELLS, [str(d.relative_to(workdir)) for d in directories])
    report.write_comparison(summary, workdir, display.console)
    return summary


def _methods(config: ConfigDict) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The methods asked for, and those that come beside them where they can run."""
    if config.methods.strip() == "all":
        return (), methods.NAMES
    chosen = arguments.entries(config.methods)
    for method in chosen:
        methods.check(method, config.objective)
    return tuple(m for m in chosen if m != "single"), ("single",)


def _cell(
    cell: ConfigDict,
    directory: Path,
    chosen: tuple[str, ...],
    beside: tuple[str, ...],
    workdir: Path,
    display: progress.Display,
) -> dict[str, Any]:
    asked = {"methods": [*beside, *chosen], "config": _essence(cell)}
    finished = directory / "asked.json"
    if finished.exists() and json.loads(finished.read_text()) == asked:
        display.say("finished before")
        return json.loads((directory / "summary.json").read_text())
    known = workdir / bounds.FILE
    summary = place.run_methods(
        cell, directory, chosen, beside=beside, known=known, display=display
    )
    if not any(row["status"] == "interrupted" for row in summary["rows"]):
        runs.write_json(finished, asked)
    return json.loads((directory / "summary.json").read_text())


def _essence(cell: ConfigDict) -> dict[str, Any]:
    kept = {key: value for key, value in cell.to_dict().items() if key not in _NOT_OF_A_CELL}
    return json.loads(json.dumps(kept))


def _summary(config: ConfigDict, summaries: list[dict[str, Any]], wall_s: float) -> dict[str, Any]:
    rows = [
        {**row, "graph": summary["graph"]["name"], "seed": summary["seed"]}
        for summary in summaries
        for row in summary["rows"]
    ]
    graphs = list({summary["graph"]["name"]: summary["graph"] for summary in summaries}.values())
    return {
        "graph": graphs[0]
        if len(graphs) == 1
        else {
            "name": ", ".join(graph["name"] for graph in graphs),
            "num_ops": sum(graph["num_ops"] for graph in graphs),
            "num_edges": sum(graph["num_edges"] for graph in graphs),
        },
        "devices": summaries[0]["devices"],
        "objective": config.objective,
        "seed": config.seed,
        "rows": rows,
        "best": _best(rows),
        "compute_s": sum(summary["compute_s"] for summary in summaries),
        "wall_s": wall_s,
    }


def _best(rows: list[dict[str, Any]]) -> str:
    """The method of the lowest geometric mean of ratios to the best single device.

    Among those that have one in every cell; the first of equals, so single devices win ties.
    """
    own = [row for row in rows if not row.get("reference")]
    ratios: dict[str, list[float]] = {}
    for row in own:
        ratio = tables.number(row["versus_best_single_device"])
        ratios.setdefault(row["method"], []).append(math.inf if not ratio else math.log(ratio))
    cells = max(map(len, ratios.values()))
    complete = [method for method in ratios if len(ratios[method]) == cells]
    return min(complete, key=lambda method: sum(ratios[method]))
