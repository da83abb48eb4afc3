"""The `export` task: the problem as a workload file for other programs.

Writes workload.json in the JSON format of Tarnawski et al. (NeurIPS 2020), which `graph` also
accepts. It has the coarse graph, on which searches work, and costs in seconds.
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
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Writes the configured problem.

    Raises:
      UserError: the devices are present and so have no known costs, or the format cannot express
        the costs.
    """
    loading.check_settings(settings)
    target = target_lib.find_target(settings)
    if target.costs is None:
        raise UserError(
            f"--task=export writes known costs, but devices={settings.devices!r} must be profiled "
            "first; describe devices, such as --config.devices=roofline:cpu,gpu,gpu"
        )
    problem = loading.make_search_problem(
        target.net, target.costs, target.names, settings.objective
    )
    workload = export.export_workload(problem.coarse)
    workdirs.claim(workdir, display, [settings.graph], outputs=[FILE])
    runs.write_json(workdir / FILE, workload)
    display.console.print(f"workload: {workdir / FILE}", markup=False, soft_wrap=True)
    return workload
