"""The `advise` task: whether placing is worth it, by objective, before any search."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from placement import simulators
from placement.errors import UserError
from placement.pipeline import loading, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import progress
from placement.pipeline.results import advice, outputs
from placement.pipeline.settings import Settings
from placement.reporting import runs, units, words

# Objectives by the backend that they predict; described devices have none.
_MEASURED = {name: backend.objectives for name, backend in loading.BACKENDS.items()}
_DESCRIBED = {"": tuple(simulators.OBJECTIVES)}


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Advises for or against a search, of every backend and every objective that predicts it.

    Returns:
      What advice.json holds.

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    loading.check(settings)
    if settings.costs:
        raise UserError(
            f"--task=advise profiles for every backend; given costs={settings.costs!r}: leave them "
            "out"
        )
    first, (objective, *_) = next(iter(_MEASURED.items()))
    present = target_lib.find(_asked(settings, first, objective)).present
    workdirs.claim(workdir, display, [settings.graph])
    runs.write_json(workdir / "environment.json", outputs.environment())
    found: list[advice.Advice] = []
    for backend, objectives in (_MEASURED if present else _DESCRIBED).items():
        asked = [_asked(settings, backend, objective) for objective in objectives]
        found += _advised(backend, asked, workdir, display)
    told = {"graph": settings.graph, "rows": [row.to_json() for row in found]}
    runs.write_json(workdir / advice.FILE, told)
    words.show(_table(found), display.console)
    for line in _lines(found):
        display.result(line)
    display.result(f"advice: {workdir / advice.FILE}")
    return told


def _advised(
    backend: str, asked: list[Settings], workdir: Path, display: progress.Display
) -> Iterator[advice.Advice]:
    """Advises on the objectives of a backend, whose costs are those of one profile."""
    target = target_lib.find(asked[0])
    with target_lib.opened(target, asked[0], workdir, display) as (target, costs, measurer, _):
        for each in asked:
            problem = loading.search_problem(target.net, costs, target.names, each.objective)
            compared = target._replace(references=target_lib.find(each).references)
            measured = measurer if each.evaluate != "simulate" else None
            with display.phase(f"estimating the possible gain under {each.objective}"):
                yield advice.find(compared, problem, measured, backend, each.time_limit_s)


def _asked(settings: Settings, backend: str, objective: str) -> Settings:
    """The configuration of a run with this objective, with the backend if there is one."""
    backend = backend or settings.backend
    return dataclasses.replace(settings, backend=backend, objective=objective)


def _table(found: list[advice.Advice]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    texts = ("objective", "backend", "fastest device")
    numbers = ("without placing", "best possible", "ratio", "cannot be shared")
    for column in (*texts, *numbers):
        table.add_column(column, justify="left" if column in texts else "right")
    for row in found:
        known = not math.isnan(row.ratio)
        table.add_row(
            *(row.objective, row.backend or units.NONE, words.Words(row.fastest)),
            units.duration(row.fastest_s) if math.isfinite(row.fastest_s) else units.NONE,
            units.duration(row.bound_s) if math.isfinite(row.bound_s) else units.NONE,
            f"{row.ratio:.3f}" if known else units.NONE,
            units.NONE if math.isnan(row.chain) else f"{row.chain:.0%}",
        )
    return table


def _lines(found: list[advice.Advice]) -> Iterator[str]:
    """Where there is room, the most first; or that there is none anywhere."""
    for row in sorted(found, key=lambda row: (math.isnan(row.ratio), row.ratio)):
        backend = f" --config.backend={row.backend}" if row.backend else ""
        yield f"--config.objective={row.objective}{backend}: {row.recommendation()}"
