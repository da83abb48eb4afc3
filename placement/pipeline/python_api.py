"""`placement.place`: the task `place` as a Python function."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from placement.errors import UserError
from placement.pipeline import workdirs
from placement.pipeline.console import progress, syntax
from placement.pipeline.settings import QUICKSTART, Settings, Value
from placement.pipeline.tasks import deploy, place
from placement.reporting import runs
from placement.reporting import verdict as verdict_lib
from placement.runtime.deployment import preflight
from placement.runtime.models import from_python


@dataclasses.dataclass(frozen=True)
class Placed:
    """A model that was placed."""

    placement: Mapping[str, str]  # operation name -> device name
    summary: dict[str, Any]  # what summary.json holds: a row for each method, and which is best
    workdir: Path  # the run directory, with the report
    settings: Settings

    @property
    def verdict(self) -> str:
        """One sentence: whether to use this placement or a plain device, and the latency."""
        decided = verdict_lib.decide(self.summary["rows"])
        return verdict_lib.sentence(decided, self.summary["objective"])

    def deploy(self, directory: str | os.PathLike[str]) -> Path:
        """Deploys the placement and copies the deployed folder.

        Args:
          directory: the folder to make; it must not exist.

        Returns:
          The folder, for `placement.load`.

        Raises:
          UserError: the folder exists, or the placement cannot be deployed: one line.
        """
        to = Path(directory)
        if to.exists():
            raise UserError(f"{str(to)!r} is there already; give a directory that is not")
        with _python_messages():
            try:
                deploy.run(self.settings, self.workdir, _display())
            finally:
                workdirs.release(self.workdir)
        shutil.copytree(self.workdir / deploy.FOLDER, to)
        return to


def run(
    model: Any,
    *,
    example_inputs: Any,
    devices: str | Sequence[str],
    input_shapes: str | Mapping[str, Sequence[int]],
    workdir: str | os.PathLike[str] | None,
    **keys: Value,
) -> Placed:
    """Places a model; see `placement.place`."""
    folder = Path(workdir or tempfile.mkdtemp(prefix="placement-"))
    with _python_messages():
        settings = Settings.from_mapping(
            {
                "graph": _graph(model, example_inputs, folder),
                "devices": devices if isinstance(devices, str) else ",".join(devices),
                "input_shapes": _shapes(input_shapes),
                **keys,
            },
            **QUICKSTART,
        )
        try:
            summary = place.run(settings, folder, _display())
        finally:
            workdirs.release(folder)
    if not (folder / runs.PLACEMENT).exists():
        raise UserError("no method found a placement that every device can run")
    return Placed(preflight.read(folder / runs.PLACEMENT).affinity, summary, folder, settings)


def _graph(model: Any, example_inputs: Any, folder: Path) -> str:
    """Returns a path or name as it is; saves any other model in the run directory."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    if not isinstance(model, from_python.Converted):
        model = from_python.graph_from(model, example_inputs)
    runs.prepare_workdir(folder)
    model.save(folder / "model.xml")
    return str(folder / "model.xml")


def _shapes(shapes: str | Mapping[str, Sequence[int]]) -> str:
    """Returns shapes as the setting has them, such as 'images:1,3,224,224;ids:1,128'."""
    if isinstance(shapes, str):
        return shapes
    return ";".join(f"{name}:{','.join(map(str, sizes))}" for name, sizes in shapes.items())


@contextlib.contextmanager
def _python_messages() -> Iterator[None]:
    """Rewrites the flags in a mistake's message to Python arguments."""
    try:
        yield
    except UserError as error:
        raise UserError(syntax.to_python(str(error))) from error


def _display() -> progress.Display:
    return progress.Display(progress.WARNING, syntax.to_python)
