"""The `solve` task: search, classical and exact solvers in the simulator, with bounds."""

import dataclasses
from pathlib import Path
from typing import Any

from placement import arguments, methods
from placement.pipeline import place, report
from placement.pipeline.console import faults, progress
from placement.pipeline.settings import Settings


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Runs the solvers in `methods`, by default all of the objective that can run here.

    Nothing is measured, whatever `evaluate` says. placement.json becomes the best placement of all.
    """
    settings = dataclasses.replace(settings, evaluate="simulate")
    solvers = tuple(methods.of_kind("search", "solver"))
    is_all = settings.methods.strip() == "all"
    requested = () if is_all else arguments.split_list(settings.methods)
    for method in requested:
        arguments.check_choice("solver", method, solvers)
        methods.check(method, settings.objective)
    with faults.raise_at_end() as fault_log:
        extra = solvers if is_all else ()
        result = place.run_methods(
            settings, workdir, requested, fault_log, extra=extra, display=display
        )
        with report.abort_report_on_error(fault_log, display):
            report.write_report(result.summary, result.directory, display.console, fault_log)
    return result.summary
