"""The `advise` task: whether placing is worth it, by objective, before any search."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from placement import simulators
from placement.pipeline import loading, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import progress
from placement.pipeline.results import advice, outputs
from placement.pipeline.settings import Settings
from placement.reporting import runs, units
from placement.reporting.tables import grids
from placement.runtime import devices


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Advises for or against a search, for every backend and every objective that predicts it.

    Described devices have no backend; they are advised on under every objective.
    """

    def configure(backend: str, objective: str) -> Settings:
        return dataclasses.replace(
            settings, backend=backend or settings.backend, objective=objective
        )

    loading.check_settings(settings)
    settings.refuse("costs", "advise profiles for every backend")
    objectives = {name: backend.objectives for name, backend in loading.BACKENDS.items()}
    if settings.devices.strip() == devices.PRECISIONS:  # they never compute at the same time
        objectives = {"hetero": objectives["hetero"]}
    first = next(iter(objectives))
    if not target_lib.find_target(configure(first, objectives[first][0])).present:
        objectives = {"": tuple(simulators.OBJECTIVES)}
    workdirs.claim(workdir, display, [settings.graph])
    runs.write_json(workdir / "environment.json", outputs.environment())
    results: list[advice.Advice] = []
    for backend, names in objectives.items():
        shared = configure(backend, names[0])  # objectives of a backend share one profile
        targets = {name: target_lib.find_target(configure(backend, name)) for name in names}
        with target_lib.open_target(targets[names[0]], shared, workdir, display) as opened:
            target, measurer, _ = opened
            for name in names:
                problem = target.problem(name)
                with display.phase(f"estimating the possible gain under {name}"):
                    compared = target._replace(references=targets[name].references)
                    results.append(advice.estimate(compared, problem, measurer, shared))
    record = {"graph": settings.graph, "rows": [result.to_json() for result in results]}
    runs.write_json(workdir / advice.FILE, record)
    texts = ("objective", "backend", "fastest device")
    numbers = ("without placing", "best possible", "ratio", "sequential")
    table = grids.new_table("", texts, numbers)
    for row in results:
        table.add_row(
            *(row.objective, row.backend or units.NONE, row.fastest),
            units.duration(row.fastest_s) if math.isfinite(row.fastest_s) else units.NONE,
            units.duration(row.bound_s) if math.isfinite(row.bound_s) else units.NONE,
            units.write(row.ratio, ".3f"),
            units.write(row.chain, ".0%"),
        )
    display.console.print(table)
    # The objective with the most to gain comes first.
    for result in sorted(results, key=lambda result: (math.isnan(result.ratio), result.ratio)):
        backend = f", backend={result.backend!r}" if result.backend else ""
        display.result(f"objective={result.objective!r}{backend}: {result.recommendation()}")
    display.result(f"advice: {workdir / advice.FILE}")
    return record
