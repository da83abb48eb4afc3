"""The tasks `place` and `compare` as Python functions, which `placement` exports."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from placement.errors import UserError
from placement.pipeline import compare as compare_task
from placement.pipeline import deploy as deploy_task
from placement.pipeline import place as place_task
from placement.pipeline import workdirs
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.reporting import verdict as verdict_lib
from placement.reporting.figures import plots
from placement.reporting.tables import comparison
from placement.runtime.deployment import preflight
from placement.runtime.models import from_python, frontend

InputShapes = str | Mapping[str, Sequence[int]]  # the setting's text, or a shape for each input


@dataclasses.dataclass(frozen=True, repr=False)
class Placed:
    """A model that was placed."""

    placement: Mapping[str, str]  # operation name -> device name
    summary: dict[str, Any]  # the content of summary.json: a row for each method, and the best
    workdir: Path  # the run directory, with the report
    settings: Settings

    def __repr__(self) -> str:
        return f"Placed({self.summary['best']!r}, workdir={str(self.workdir)!r})"

    @property
    def verdict(self) -> str:
        """One sentence: whether to use this placement or a plain device, and the latency."""
        decided = verdict_lib.decide(self.summary["rows"])
        return verdict_lib.sentence(decided, self.summary["objective"])

    def deploy(self, directory: str | os.PathLike[str]) -> Path:
        """Deploys the placement, and copies the folder to a new directory, for `placement.load`.

        Raises:
          UserError: the directory exists, or the placement cannot be deployed: one line.
        """
        folder = Path(directory)
        if folder.exists():
            raise UserError(f"{str(folder)!r} exists already; pass a new directory")
        with _run_directory(self.workdir) as display:
            deploy_task.run(self.settings, self.workdir, display)
        shutil.copytree(self.workdir / deploy_task.FOLDER, folder)
        return folder


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """Methods on graphs, run with the same limits and several seeds."""

    # One for each graph, method and seed, with the columns of comparison.csv. A method that no seed
    # changes has a row for the first seed alone.
    rows: tuple[Mapping[str, Any], ...]
    # Means over all runs and probabilities of improvement, as summary.json has them.
    statistics: Mapping[str, Any]
    summary: dict[str, Any]  # the content of summary.json
    workdir: Path  # the run directory, with the report

    def __repr__(self) -> str:
        counts = [f"{len({row[key] for row in self.rows})} {key}s" for key in ("graph", "method")]
        return f"Comparison({', '.join(counts)}, best={self.summary['best']!r})"

    def plot(self) -> Any:  # matplotlib.figure.Figure
        """Draws the latency of each method over that of the best single device, by graph."""
        return plots.methods(self.summary["rows"])


def place(
    model: Any,
    *,
    example_inputs: Any = None,
    input_shapes: InputShapes = "",
    workdir: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Placed:
    """Places a model on this machine's devices: profiles, searches and measures.

    Args:
      model: the path of a model file; a network of the zoo; an `openvino.Model`; what `graph_from`
        returns; or what it takes, such as a `torch.nn.Module`.
      example_inputs: the inputs of a module or function, as for `graph_from`.
      input_shapes: the shapes of dynamic inputs, such as {'images': (1, 3, 224, 224)}.
      workdir: the run directory; None makes a temporary one.
      settings: fields of `placement.pipeline.settings.Settings`, such as devices=['CPU', 'GPU.0'],
        method='hsdag' or time_limit_s=60.

    Raises:
      UserError: the model, a device or a setting is invalid: one line.
    """
    folder = Path(workdir or tempfile.mkdtemp(prefix="placement-"))
    with _run_directory(folder) as display:
        graph = _graph(model, example_inputs, folder / "model.xml")
        try:
            shapes = (
                input_shapes
                if isinstance(input_shapes, str)
                else frontend.format_shapes(input_shapes)
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"input_shapes={input_shapes!r} is not a dict of shapes; pass a shape for each "
                "input, such as {'images': (1, 3, 224, 224)}"
            ) from error
        checked = Settings.from_mapping(settings | {"graph": graph, "input_shapes": shapes})
        summary = place_task.run(checked, folder, display)
    if not (folder / runs.PLACEMENT).exists():
        raise UserError("no method found a placement that every device can run")
    return Placed(preflight.read(folder / runs.PLACEMENT).affinity, summary, folder, checked)


def compare(
    graphs: Any,
    methods: str | Sequence[str],
    *,
    workdir: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Runs methods on graphs with the same limits and several seeds, in one table.

    Args:
      graphs: one graph or a list; each is the path of a model file, a network of the zoo, an
        `openvino.Model` or the result of `graph_from`.
      methods: such as ['hsdag', 'lns'], names of `list_methods`, registered ones included. The
        single devices are always in the table.
      workdir: the run directory; None makes a temporary one. With the same directory, an
        interrupted comparison continues and a finished one is not repeated.
      settings: fields of `placement.pipeline.settings.Settings`, such as seeds=5, budget=1000,
        devices='roofline:cpu,gpu', or evaluate='simulate', which measures nothing.

    Returns:
      The rows, one for each graph, method and seed, with `plot()`.

    Raises:
      UserError: a graph, a method, a device or a setting is invalid: one line.
    """
    folder = Path(workdir or tempfile.mkdtemp(prefix="placement-"))
    with _run_directory(folder, progress.INFO) as display:
        models = graphs if isinstance(graphs, list | tuple) else [graphs]
        names = [
            _graph(model, None, folder / f"model-{i}.xml") for i, model in enumerate(models, 1)
        ]
        settings |= {"graphs": names, "methods": methods}
        summary = compare_task.run(Settings.from_mapping(settings), folder, display)
    rows = tuple(comparison.records(summary["rows"]))
    return Comparison(rows, summary["statistics"], summary, folder)


def _graph(model: Any, example_inputs: Any, file: Path) -> str:
    """Returns a path or name as it is; saves any other model in the file of a run directory."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    runs.prepare_workdir(file.parent)
    from_python.save(model, example_inputs, file)
    return str(file)


@contextlib.contextmanager
def _run_directory(folder: Path, verbosity: int = progress.WARNING) -> Iterator[progress.Display]:
    """Gives the display of a task that works in a folder, and releases the folder at the end."""
    try:
        yield progress.Display(verbosity)
    finally:
        workdirs.release(folder)
