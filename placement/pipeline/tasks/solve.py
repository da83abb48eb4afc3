"""The `solve` task: search, classical and exact solvers in the simulator, with bounds."""

from pathlib import Path
from typing import Any

from placement import arguments, methods
from placement.pipeline.console import faults, progress
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import place, report


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Runs the solvers of `config.methods`, by default all of the objective that can run here.

    Args:
      settings: of the run; nothing is measured, whatever it says of evaluation.
      workdir: the run directory, whose placement.json becomes the best placement of all.
      display: where to say what is done.

    Returns:
      The summary, as written to summary.json.

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    settings = ConfigDict(settings.to_dict())
    settings.evaluate = "simulate"
    chosen: tuple[str, ...] = ()
    searches = (*methods.SEARCHES, *methods.SOLVERS)
    beside = ("single", *searches)
    if settings.methods.strip() != "all":
        chosen, beside = arguments.entries(settings.methods), ("single",)
    for method in chosen:
        arguments.check("solver", method, searches)
        methods.check(method, settings.objective)
    with faults.told_last() as kept:
        run_ = place.run_methods(settings, workdir, chosen, kept, beside=beside, display=display)
        with report.reporting(kept, display):
            report.write(run_.summary, run_.directory, display.console, kept)
    return run_.summary
