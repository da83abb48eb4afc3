"""The `profile` task: the costs of a model on the devices, corrected by measured placements.

Writes profile.json, which the setting `costs` reads, and says how far predictions are off before
and after the correction (`placement.pipeline.correction_loop`).
"""

import dataclasses
from pathlib import Path
from typing import Any

from placement.errors import UserError
from placement.pipeline import correction_loop, loading, saved_costs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import progress
from placement.pipeline.results import outputs
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.solvers.limits import SearchLimits


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Profiles the devices and corrects the costs; returns the content of profile.json."""
    loading.check_settings(settings)
    # Whatever `evaluate` says, placements are measured.
    settings = dataclasses.replace(settings, evaluate="simulate+verify")
    target = target_lib.find_target(settings)
    if len(target.present) < 2:
        raise UserError(
            f"profile measures placements on two or more present devices, and graph="
            f"{settings.graph!r} with devices={settings.devices!r} has {len(target.present)}; set "
            "for example devices='host'"
        )
    settings.refuse("costs", "profile makes a new profile")
    workdirs.claim(workdir, display, [settings.graph])
    runs.write_json(workdir / "config.json", settings.to_dict())
    environment = outputs.environment(target.hosts)
    runs.write_json(workdir / "environment.json", environment)
    with target_lib.open_accurate(target, settings, display) as (target, measurer, _):
        saved = target_lib.get_profile(settings, target.net, measurer, workdir, display)
        saved.pop("correction", None)  # of an earlier run of this task
        target = target._replace(costs=saved_costs.cost_model(target.net.graph, saved))
        problem = target.problem(settings.objective)
        evaluate = loading.make_measured_evaluate(settings, target.net, problem, measurer, workdir)
        result = None
        if evaluate is not None:
            with display.phase("correcting the costs by measured placements"):
                limits = SearchLimits(settings.time_limit_s, settings.budget)
                result = correction_loop.correct(
                    target, problem, evaluate, settings.seed, limits, thorough=True
                )
        environment |= target_lib.describe_conditions(saved, measurer, display)
    if result is None or result.record is None:
        display.warn("fewer than two placements could be measured: the costs are not corrected")
    else:
        display.say(result.describe())
        saved |= {"correction": result.record}
    runs.write_json(workdir / saved_costs.FILE, saved)
    runs.write_json(workdir / "environment.json", environment)
    display.console.print(f"costs: {workdir / saved_costs.FILE}", markup=False, soft_wrap=True)
    return saved
