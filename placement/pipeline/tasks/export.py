"""The `export` task: the problem as a workload, for others' programs.

Writes workload.json, in the JSON format of Tarnawski et al. (NeurIPS 2020), which `graph` also
takes: of the coarse graph, on which searches work, with costs in seconds.
"""

from pathlib import Path
from typing import Any

from placement.costs import export
from placement.errors import UserError
from placement.pipeline import loading, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.reporting import runs

FILE = "workload.json"


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Writes the configured problem.

    Returns:
      What workload.json holds.

    Raises:
      UserError: the devices are present, whose costs are to be measured first, or the format cannot
        say what they cost.
    """
    loading.check(settings)
    target = target_lib.find(settings)
    if target.costs is None:
        raise UserError(
            f"--task=export writes costs that are known, and devices={settings.devices!r} are to be "
            "profiled first; describe devices, such as --config.devices=roofline:cpu,gpu,gpu"
        )
    problem = loading.search_problem(target.net, target.costs, target.names, settings.objective)
    written = export.workload(problem.coarse)
    workdirs.claim(workdir, display)
    runs.write_json(workdir / FILE, written)
    display.console.print(f"workload: {workdir / FILE}", markup=False, soft_wrap=True)
    return written
