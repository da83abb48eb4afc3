"""The tasks of both command lines, and how a command runs one."""

import importlib
import io
import sys
from pathlib import Path

from placement.pipeline.console import compilation_cache, faults
from placement.pipeline.settings import Settings

# Each is the function `run(settings, workdir, display)` of the module of its name.
TASKS = {
    "place": "profiles a model, searches for the fastest placement and measures it",
    "advise": "says how much placing a model could gain at most, before any search",
    "compare": "runs several methods on graphs with the same limits, in one table",
    "solve": "runs search, classical and exact solvers in the simulator, with bounds",
    "profile": "profiles a model, and corrects its costs by measuring a few placements",
    "pretrain": "trains one policy on many graphs, for unseen graphs",
    "deploy": "writes a folder for `placement.load` from a finished run",
    "report": "prints and writes the report of a finished run again",
    "list": "lists graphs, methods, devices and objectives",
}


def prepare_process() -> None:
    """Prepares the process of a command; call it before JAX is imported."""
    compilation_cache.keep_compiled()
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may lack characters of a path
        sys.stdout.reconfigure(errors="backslashreplace")


def run_command(
    task: str, settings: Settings | None, workdir: Path | None, verbosity: int = 0
) -> None:
    """Runs a task; an error ends the process with one line and an exit code.

    JAX and OpenVINO are imported here and not before, so that help and mistakes print at once.
    """
    with faults.exit_on_error(workdir):
        module = importlib.import_module(f"placement.pipeline.{task}")
        progress = importlib.import_module("placement.pipeline.console.progress")
        module.run(settings, workdir, progress.Display(verbosity))
