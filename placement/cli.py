"""The installed command: `placement place model.onnx --devices host`.

Each option is a field of `placement.pipeline.settings.Settings`. `python -m experiments.main` takes
the same settings from configuration files.
"""

import importlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import placement
from placement import files
from placement.errors import UserError
from placement.pipeline.console import faults
from placement.pipeline.console.compilation_cache import keep_compiled
from placement.pipeline.settings import SUMMARIES, Settings, Value

_MODEL = ("devices", "input_shapes", "input_values", "inputs", "max_error", "constants", "seed")
_MEASURED = (*_MODEL, "backend", "objective", "costs", "evaluate", "measure_on", "measure_s")
_SEARCH = (*_MEASURED, "budget", "time_limit_s", "init_from")
# The help says the unit.
_OPTION_NAMES = {"time_limit_s": "--time-limit", "measure_s": "--measure-time"}
_Command = Callable[..., None]


def _options(*names: str) -> Callable[[_Command], _Command]:
    """Adds the options of settings."""
    values = Settings().to_dict()

    def decorate(function: _Command) -> _Command:
        for name in reversed(names):
            option = _OPTION_NAMES.get(name, "--" + name.replace("_", "-"))
            flag = f"{option}/--no-{option.removeprefix('--')}"
            function = click.option(
                flag if isinstance(values[name], bool) else option,
                name,
                default=values[name],
                show_default=True,
                help=SUMMARIES[name],
            )(function)
        return click.option(
            "--verbosity",
            type=click.IntRange(-1, 1),
            default=0,
            show_default=True,
            help="-1 prints only results and warnings, 1 prints details too",
        )(function)

    return decorate


def _workdir(default: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--workdir",
        type=click.Path(path_type=Path, file_okay=False),
        help=f"the run directory  [default: {default}]",
    )


_run_directory = click.argument("workdir", metavar="RUN_DIR", type=click.Path(path_type=Path))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(placement.__version__, prog_name="placement")
def main() -> None:
    """Decides which device of this machine runs which operation of a neural network."""


@main.command()
@click.argument("model")
@_workdir("runs/MODEL")
@_options(*_SEARCH, "method", "search_anyway")
def place(model: str, workdir: Path | None, verbosity: int, **settings: Value) -> None:
    """Profiles MODEL, searches for the fastest placement and measures it.

    MODEL is a model file (.onnx, .xml, .tflite, .pb), a SavedModel folder, or a network of the zoo.
    """
    _run("place", {"graph": model, **settings}, workdir, verbosity)


@main.command()
@click.argument("model")
@_workdir("runs/MODEL")
@_options(*_MODEL, "evaluate", "measure_on", "measure_s", "time_limit_s")
def advise(model: str, workdir: Path | None, verbosity: int, **settings: Value) -> None:
    """Says how much placing MODEL could gain at most, before any search."""
    _run("advise", {"graph": model, **settings}, workdir, verbosity)


@main.command()
@click.argument("model")
@_workdir("runs/MODEL")
@_options(*_SEARCH)
def profile(model: str, workdir: Path | None, verbosity: int, **settings: Value) -> None:
    """Profiles MODEL, and corrects its costs by measuring a few placements."""
    _run("profile", {"graph": model, **settings}, workdir, verbosity)


@main.command()
@click.argument("graphs", nargs=-1, required=True)
@_workdir("runs/compare")
@_options(*_SEARCH, "methods", "seeds")
def compare(
    graphs: tuple[str, ...], workdir: Path | None, verbosity: int, **settings: Value
) -> None:
    """Runs several methods on GRAPHS with the same limits, in one table."""
    settings |= {"graph": graphs[0], "graphs": ",".join(graphs)}
    _run("compare", settings, workdir or Path("runs/compare"), verbosity)


@main.command()
@_run_directory
@_options()
def deploy(workdir: Path, verbosity: int) -> None:
    """Writes a folder for `placement.load` from a finished RUN_DIR, with the run's own settings."""
    with faults.exit_on_error(None):
        values = _saved_settings(workdir)
    _run("deploy", values, workdir, verbosity)


@main.command()
@_run_directory
@_options()
def report(workdir: Path, verbosity: int) -> None:
    """Prints and writes the report of a finished RUN_DIR again."""
    _run("report", None, workdir, verbosity)


@main.command()
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """Lists all methods, or the hyper-parameters of one and their defaults."""
    _print_list(
        lambda tasks: tasks.hyper_parameter_section(name) if name else tasks.method_sections()
    )


@main.command()
@click.argument("model", required=False)
@_options("input_shapes")
def devices(model: str | None, input_shapes: str, verbosity: int) -> None:
    """Lists the devices of this machine and the hardware that can be described.

    With a MODEL, lists instead which of its operations each device cannot run, and why.
    """
    del verbosity
    _print_list(
        lambda listing: (
            listing.support_sections(model, input_shapes) if model else listing.device_sections()
        )
    )


def _saved_settings(workdir: Path) -> dict[str, Any]:
    """Returns the settings of a finished run.

    Raises:
      UserError: the directory has no readable config.json.
    """
    file = workdir / "config.json"
    if not file.exists():
        raise UserError(
            f"no config.json in {str(workdir)!r}; pass the run directory of a placement"
        )
    saved = files.read_json(file, {str: object}, remedy="place the model again")
    return {key: value for key, value in saved.items() if key in SUMMARIES}


def _run(task: str, values: dict[str, Any] | None, workdir: Path | None, verbosity: int) -> None:
    """Runs a task of the pipeline; JAX and OpenVINO are imported here and not before."""
    keep_compiled()
    with faults.exit_on_error(None):
        settings = None if values is None else Settings.from_mapping(values)
        if workdir is None:
            assert settings is not None, "a command without a model takes a run directory"
            labels = importlib.import_module("placement.pipeline.graph_labels")
            runs = importlib.import_module("placement.reporting.runs")
            workdir = Path("runs") / runs.file_name(labels.shortest(settings.graph))
    with faults.exit_on_error(workdir):
        module = importlib.import_module(f"placement.pipeline.{task}")
        progress = importlib.import_module("placement.pipeline.console.progress")
        module.run(settings, workdir, progress.Display(verbosity))


def _print_list(sections: Callable[[Any], dict[str, dict[str, str]]]) -> None:
    keep_compiled()
    with faults.exit_on_error(None):
        listing = importlib.import_module("placement.pipeline.list")
        progress = importlib.import_module("placement.pipeline.console.progress")
        listing.show(sections(listing), progress.Display())


def entry() -> None:
    """Runs the command; a mistake is one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # its encoding may lack characters of a path
            stream.reconfigure(errors="backslashreplace")
    main(prog_name="placement")


if __name__ == "__main__":
    entry()
