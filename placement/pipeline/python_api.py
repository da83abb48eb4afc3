"""`placement.place`: the task `place` for whoever has a prompt and no command line."""

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs import quickstart
from placement import arguments
from placement.errors import UserError
from placement.pipeline import workdirs
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import deploy, place
from placement.reporting import runs
from placement.runtime.deployment import preflight


@dataclasses.dataclass(frozen=True)
class Placed:
    """A model that was placed."""

    placement: Mapping[str, str]  # operation's name -> its device's
    summary: dict[str, Any]  # what summary.json holds: a row a method, and which is best
    workdir: Path  # the run directory, with the report
    settings: Settings

    def deploy(self, directory: str | os.PathLike[str]) -> Path:
        """Does what `--task=deploy` does, and copies the folder that it makes.

        Args:
          directory: what to make; nothing is there yet.

        Returns:
          The same, for `placement.load`.

        Raises:
          UserError: there is something, or of `--task=deploy`: one line.
        """
        to = Path(directory)
        if to.exists():
            raise UserError(f"{str(to)!r} is there already; give a directory that is not")
        try:
            deploy.run(self.settings, self.workdir)
        finally:
            workdirs.release(self.workdir)
        shutil.copytree(self.workdir / deploy.FOLDER, to)
        return to


def run(
    model: str | os.PathLike[str],
    *,
    devices: str,
    method: str,
    workdir: str | os.PathLike[str] | None,
    **keys: bool | int | float | str,
) -> Placed:
    """Places a model; see `placement.place`."""
    settings = quickstart.get_config()
    if not isinstance(model, str | os.PathLike):
        raise UserError(
            f"model is of type {type(model).__name__}; give a path or a network of the zoo"
        )
    given = {"graph": os.fspath(model), "devices": devices, "method": method, **keys}
    for key, value in given.items():
        arguments.check("key", key, settings)
        try:
            settings[key] = value
        except TypeError as error:
            kind = type(settings[key]).__name__
            raise UserError(f"{key}={value!r} is no {kind}; give one") from error
    folder = Path(workdir or tempfile.mkdtemp(prefix="placement-"))
    try:
        summary = place.run(settings, folder, progress.Display(progress.WARNING))
    finally:
        workdirs.release(folder)
    if not (folder / runs.PLACEMENT).exists():
        raise UserError("no method found a placement that every device can run")
    return Placed(preflight.read(folder / runs.PLACEMENT).affinity, summary, folder, settings)
