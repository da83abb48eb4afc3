"""The researchers' command line: a flag for each setting, and configurations to begin with.

    python -m experiments.main --config=configs/quickstart.py --workdir=runs/quickstart \\
        --config.graph=model.onnx

The process exits with one of `faults.EXIT_CODES`. After 3 or 130, or after a kill, the same command
continues from the saved state.
"""

import dataclasses
import os
import re
import runpy
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from configs import common
from placement import arguments
from placement.errors import UserError
from placement.pipeline import tasks
from placement.pipeline.console import faults
from placement.pipeline.settings import Settings

_CONFIGS = Path(common.__file__).parent
# All of absl's help flags print the same help.
_HELP = re.compile(r"--?(h|\?|help|helpshort|helpfull|helpxml)(=(true|1|yes))?", re.IGNORECASE)
_DEFINE: dict[type, Any] = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}

_CONFIG = flags.DEFINE_string("config", None, "the configuration: its name or its file")
_WORKDIR = flags.DEFINE_string("workdir", None, "the run directory")
_TASK = flags.DEFINE_string("task", "place", "the task")
_SETTINGS = {
    field.name: _DEFINE[type(field.default)](
        f"config.{field.name}", field.default, field.metadata["summary"]
    )
    for field in dataclasses.fields(Settings)
}


def main(argv: Sequence[str]) -> None:
    """Runs the task; an error becomes one line and one of `faults.EXIT_CODES`."""
    workdir = Path(_WORKDIR.value) if _WORKDIR.value else None
    with faults.exit_on_error(workdir):
        if len(argv) > 1:
            raise UserError(f"unexpected argument {argv[1]!r}; flags look like --task=place")
        task = _TASK.value
        arguments.check_choice("task", task, tasks.TASKS)
        settings = read_settings()
        missing = ""
        if task not in ("list", "report") and settings is None:
            names = ", ".join(_list_configs())
            missing = f"--config, such as --config=quickstart; configurations: {names}"
        if task != "list" and workdir is None:
            missing = "--workdir, such as --workdir=runs/quickstart"
        if missing:
            raise UserError(f"--task={task} needs {missing}")
    tasks.run_command(task, settings, workdir, flags.FLAGS.verbosity)


def read_settings() -> Settings | None:
    """Returns the settings of the configuration, changed by the flags; None without either.

    Flags such as `--config.graph=...` without `--config` change the quickstart.

    Raises:
      UserError: the configuration does not exist, or is not one.
    """
    changes = {name: flag.value for name, flag in _SETTINGS.items() if flag.present}
    text = _CONFIG.value or ("quickstart" if changes else None)
    if text is None:
        return None
    # A bare name is an installed configuration: it must not run code of the current folder.
    is_path = text.endswith(".py") or "/" in text or os.sep in text
    files = (Path(text), _CONFIGS.parent / text) if is_path else (_CONFIGS / f"{text}.py",)
    file = next(filter(Path.is_file, files), None)
    if file is None:
        raise arguments.make_choice_error("configuration", text, _list_configs())
    try:
        config = dict(runpy.run_path(str(file))["get_config"]())
    except Exception as error:  # of any type: the file is a program
        raise UserError(
            f"{str(file)!r} is not a configuration: {type(error).__name__}: {error}; pass a file "
            f"whose get_config() returns one, or one of {', '.join(_list_configs())}"
        ) from error
    return Settings.from_mapping(config | changes)


def _list_configs() -> list[str]:
    return sorted(file.stem for file in _CONFIGS.glob("[a-z]*.py") if file.stem != "common")


def help_text() -> str:
    """Returns the help: tasks, configurations, exit codes, and absl's list of all flags."""
    lines = [f"  {task:<9} {text}" for task, text in tasks.TASKS.items()]
    codes = [f"  {code:<9} {text}" for code, text in faults.EXIT_CODES.items()]
    _, _, flag_texts = flags.FLAGS.module_help(sys.modules[__name__]).partition(":\n")
    names = ", ".join(_list_configs())
    return "\n\n".join(
        [
            "usage: python -m experiments.main --config=NAME --workdir=DIR [--task=place]\n"
            "       [--config.KEY=VALUE ...]",
            "\n".join(["tasks:", *lines]),
            "configurations (--config=NAME, or the path of one):\n"
            + textwrap.fill(names, 78, initial_indent="  ", subsequent_indent="  "),
            "\n".join(["exit codes:", *codes]),
            f"flags:\n{flag_texts}",
            "--verbosity=-1 prints only results and warnings, --verbosity=1 prints details too.",
        ]
    )


def parse(argv: list[str]) -> list[str]:
    """Parses flags; a mistake in them becomes one line and exit code 2."""
    with faults.exit_on_error(None):
        try:
            return flags.FLAGS(argv)
        except flags.UnrecognizedFlagError as error:
            valid = ("config", "workdir", "task", *(f"config.{name}" for name in _SETTINGS))
            raise arguments.make_choice_error("flag", error.flagname, valid) from error
        except flags.Error as error:
            raise UserError(str(error)) from error


def cli() -> None:
    """Runs absl with `parse` instead of its own parser, which prints the usage and exits with 1."""
    tasks.prepare_process()
    if len(sys.argv) < 2:
        print(help_text(), file=sys.stderr)
        sys.exit(2)
    if any(map(_HELP.fullmatch, sys.argv[1:])):
        print(help_text())
        sys.exit(0)
    app.run(main, flags_parser=parse)


if __name__ == "__main__":
    cli()
