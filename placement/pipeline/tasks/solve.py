"""The `solve` task: search, classical and exact solvers in the simulator, with bounds."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from placement import arguments, methods
from placement.pipeline.console import faults, progress
from placement.pipeline.tasks import place, report


def run(
    config: ConfigDict, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Runs the solvers of `config.methods`, by default all of the objective that can run here.

    Args:
      config: of `configs.common`; nothing is measured, whatever it says of evaluation.
      workdir: the run directory, whose placement.json becomes the best placement of all.
      display: where to say what is done.

    Returns:
      The summary, as written to summary.json.

    Raises:
      UserError: anything about the configuration that cannot be run, in one line.
    """
    config = ConfigDict(config.to_dict())
    config.evaluate = "simulate"
    chosen: tuple[str, ...] = ()
    searches = (*methods.SEARCHES, *methods.SOLVERS)
    beside = ("single", *searches)
    if config.methods.strip() != "all":
        chosen, beside = arguments.entries(config.methods), ("single",)
    for method in chosen:
        arguments.check("solver", method, searches)
        methods.check(method, config.objective)
    with faults.told_last() as kept:
        run_ = place.run_methods(config, workdir, chosen, kept, beside=beside, display=display)
        with report.reporting(kept, display):
            report.write(run_.summary, run_.directory, display.console, kept)
    return run_.summary
