"""The `advise` task: whether placing is worth it, by objective, before any search."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from placement import simulators
from placement.pipeline import loading, saved_costs, workdirs
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
    target = target_lib.find_target(configure(first, objectives[first][0]))
    if not target.present:
        objectives = {"": tuple(simulators.OBJECTIVES)}
    workdirs.claim(workdir, display, [settings.graph])
    runs.write_json(workdir / "environment.json", outputs.environment())
    results: list[advice.Advice] = []
    configured = [configure(b, name) for b, names in objectives.items() for name in names]
    targets = [target_lib.find_target(settings, target.net) for settings in configured]
    references = tuple(dict.fromkeys(device for target in targets for device in target.references))
    with target_lib.open_target(targets[0], configured[0], workdir, display) as opened:
        target, measurer, _ = opened
        with display.phase("timing OpenVINO without placing"):
            compared = target._replace(references=references)
            references_s = advice.measure_references(compared, measurer, configured[0])
        by_backend = {configured[0].backend: target}
        for configured_target, settings in zip(targets, configured, strict=True):
            if settings.backend not in by_backend:
                assert measurer is not None
                assert target.costs is not None
                saved = target_lib.get_profile(settings, target.net, measurer, workdir, display)
                costs = saved_costs.cost_model(target.net.graph, saved)
                # What a device computes wrong stays off it.
                compute_s = np.where(np.isinf(target.costs.compute_s), np.inf, costs.compute_s)
                costs = costs._replace(compute_s=compute_s)
                by_backend[settings.backend] = target._replace(costs=costs)
            compared = by_backend[settings.backend]._replace(
                references=configured_target.references
            )
            problem = compared.problem(settings.objective)
            with display.phase(f"estimating the possible gain under {settings.objective}"):
                results.append(advice.estimate(compared, problem, references_s, settings))
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
