"""The installed command: `placement place model.onnx --devices host`.

Each option is a field of `placement.pipeline.settings.Settings`. `python -m experiments.main` takes
the same settings from configuration files.
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import placement
from placement import files
from placement.errors import UserError
from placement.pipeline import tasks
from placement.pipeline.console import faults
from placement.pipeline.settings import Settings

_MODEL = ("devices", "input_shapes", "input_values", "inputs", "max_error", "constants", "seed")
_MEASURED = (*_MODEL, "backend", "objective", "costs", "evaluate", "measure_on", "measure_s")
_SEARCH = (*_MEASURED, "budget", "starts", "time_limit_s", "init_from")
_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
# The help says the unit.
_OPTION_NAMES = {"time_limit_s": "time-limit", "measure_s": "measure-time"}

_verbosity = click.option(
    "--verbosity",
    type=click.IntRange(-1, 1),
    default=0,
    show_default=True,
    help="-1 prints only results and warnings, 1 prints details too",
)
_run_directory = click.argument("workdir", metavar="RUN_DIR", type=click.Path(path_type=Path))


def _options(*names: str) -> Callable[[Any], Any]:
    """Adds the options of settings, with their defaults and lines of help."""

    def decorate(function: Any) -> Any:
        for name in reversed(names):
            option = _OPTION_NAMES.get(name, name.replace("_", "-"))
            default, summary = _FIELDS[name].default, _FIELDS[name].metadata["summary"]
            flag = f"--{option}/--no-{option}" if isinstance(default, bool) else f"--{option}"
            add = click.option(flag, name, default=default, show_default=True, help=summary)
            function = add(function)
        return _verbosity(function)

    return decorate


def _workdir(default: str) -> Callable[[Any], Any]:
    help_text = f"the run directory  [default: {default}]"
    return click.option(
        "--workdir", type=click.Path(path_type=Path, file_okay=False), help=help_text
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(placement.__version__, prog_name="placement")
def main() -> None:
    """Decides which device of this machine runs which operation of a neural network."""


@main.command()
@click.argument("model", type=click.Path())
@_workdir("runs/MODEL")
@_options(*_SEARCH, "method", "search_anyway")
def place(model: str, workdir: Path | None, verbosity: int, **settings: Any) -> None:
    """Profiles MODEL, searches for the fastest placement and measures it.

    MODEL is a model file (.onnx, .xml, .tflite, .pb), a SavedModel folder, or a network of the zoo.
    """
    _run("place", {"graph": model, **settings}, workdir, verbosity)


@main.command()
@click.argument("model", type=click.Path())
@_workdir("runs/MODEL")
@_options(*_MODEL, "evaluate", "measure_on", "measure_s", "time_limit_s")
def advise(model: str, workdir: Path | None, verbosity: int, **settings: Any) -> None:
    """Says how much placing MODEL could gain at most, before any search."""
    _run("advise", {"graph": model, **settings}, workdir, verbosity)


@main.command()
@click.argument("model", type=click.Path())
@_workdir("runs/MODEL")
@_options(*_SEARCH)
def profile(model: str, workdir: Path | None, verbosity: int, **settings: Any) -> None:
    """Profiles MODEL, and corrects its costs by measuring a few placements."""
    _run("profile", {"graph": model, **settings}, workdir, verbosity)


@main.command()
@click.argument("graphs", nargs=-1, required=True, type=click.Path())
@_workdir("runs/compare")
@_options(*_SEARCH, "methods", "seeds")
def compare(graphs: tuple[str, ...], workdir: Path | None, verbosity: int, **settings: Any) -> None:
    """Runs several methods on GRAPHS with the same limits, in one table."""
    settings |= {"graph": graphs[0], "graphs": ",".join(graphs)}
    _run("compare", settings, workdir or Path("runs/compare"), verbosity)


@main.command()
@_run_directory
@_verbosity
def deploy(workdir: Path, verbosity: int) -> None:
    """Writes a folder for `placement.load` from a finished RUN_DIR, with the run's settings."""
    remedy = "pass the run directory of a placement"
    saved = files.read_json(workdir / "config.json", {str: object}, remedy=remedy)
    values = {key: value for key, value in saved.items() if key in _FIELDS}
    _run("deploy", values, workdir, verbosity)


@main.command()
@_run_directory
@_verbosity
def report(workdir: Path, verbosity: int) -> None:
    """Prints and writes the report of a finished RUN_DIR again."""
    tasks.run_command("report", None, workdir, verbosity)


@main.command()
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """Lists all methods, or the hyper-parameters of one and their defaults."""
    from placement.pipeline import list

    list.show(list.hyper_parameter_section(name) if name else list.method_sections())


@main.command()
@click.argument("model", required=False, type=click.Path())
@_options("input_shapes")
def devices(model: str | None, input_shapes: str, verbosity: int) -> None:
    """Lists the devices of this machine and the hardware that can be described.

    With a MODEL, lists instead which of its operations each device cannot run, and why.
    """
    del verbosity
    from placement.pipeline import list

    list.show(list.support_sections(model, input_shapes) if model else list.device_sections())


def _run(task: str, values: dict[str, Any], workdir: Path | None, verbosity: int) -> None:
    """Runs a task with these settings; without a run directory, in the one named by the model."""
    settings = Settings.from_mapping(values)
    if workdir is None:
        from placement.pipeline import graph_labels

        workdir = graph_labels.run_directory(settings.graph)
    tasks.run_command(task, settings, workdir, verbosity)


def entry() -> None:
    """Runs the command; a mistake is one line and exit code 2."""
    tasks.prepare_process()
    with faults.exit_on_error(None):
        try:
            main(prog_name="placement", standalone_mode=False)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(2)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "placement"
            text = error.format_message().rstrip(".")
            raise UserError(f"{text} ({command} --help lists what is valid)") from error


if __name__ == "__main__":
    entry()
