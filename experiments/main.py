"""The entry point of the researchers' command line: parses flags and runs a task.

python -m experiments.main --config=quickstart --workdir=runs/quickstart

The process exits with one of `faults.EXIT_CODES`. After 3 or 130, or after a kill, the same command
continues from the saved state.
"""

import importlib
import io
import os
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags
from ml_collections import config_flags

from experiments import usage
from placement import arguments
from placement.errors import UserError
from placement.pipeline.console import faults
from placement.pipeline.console.compilation_cache import keep_compiled
from placement.pipeline.settings import SUMMARIES, Settings

TASKS = (
    *("place", "advise", "deploy", "compare", "solve"),
    *("profile", "pretrain", "report", "list"),
)
_REQUIRED = {"report": ("workdir",), "list": ()}  # the other tasks need both flags
_EXAMPLES = {"config": "quickstart", "workdir": "runs/quickstart"}
# All of absl's help flags print the same help.
_HELP = re.compile(r"--?(h|\?|help|helpshort|helpfull|helpxml)(=(true|1|yes))?", re.IGNORECASE)

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The configuration: its name or its file.", lock_config=True
)
_WORKDIR = flags.DEFINE_string("workdir", None, "The run directory.")
_TASK = flags.DEFINE_string("task", "place", f"One of {', '.join(TASKS)}.")


def main(argv: Sequence[str]) -> None:
    """Runs the task; an error becomes one line and one of `faults.EXIT_CODES`."""
    with faults.exit_on_error(_workdir()):
        if len(argv) > 1:
            raise UserError(f"unexpected argument {argv[1]!r}; flags look like --task=place")
        task = _TASK.value
        arguments.check_choice("task", task, TASKS)
        values = {"config": _CONFIG.value, "workdir": _WORKDIR.value}
        missing = [name for name in _REQUIRED.get(task, values) if not values[name]]
        if missing:
            flag_names = " and ".join(f"--{name}" for name in missing)
            example = " ".join(f"--{name}={_EXAMPLES[name]}" for name in missing)
            names = f"; configurations: {', '.join(usage.configs())}" if "config" in missing else ""
            raise UserError(f"--task={task} needs {flag_names}, such as {example}{names}")
        keep_compiled()
        # Imported late, as these modules load JAX and OpenVINO: help and mistakes print at once.
        module = importlib.import_module(f"placement.pipeline.{task}")
        progress = importlib.import_module("placement.pipeline.console.progress")
        settings = None if _CONFIG.value is None else Settings.from_mapping(_CONFIG.value)
        module.run(settings, _workdir(), progress.Display(flags.FLAGS.verbosity))


def _workdir() -> Path | None:
    return Path(_WORKDIR.value) if _WORKDIR.value else None


def parse(argv: list[str]) -> list[str]:
    """Parses flags; a mistake in them becomes one line and exit code 2."""
    with faults.exit_on_error(None):
        try:
            return flags.FLAGS(_resolve_configs(argv))
        except UserError:
            raise
        except flags.UnrecognizedFlagError as error:
            valid = ("config", "workdir", "task")
            raise arguments.make_choice_error("flag", error.flagname, valid) from error
        except (flags.Error, AttributeError, KeyError, ValueError, TypeError, OSError) as error:
            if error.args and isinstance(cause := error.args[0], KeyError):
                key = str(cause.args[0]).partition("\n")[0].strip("'")
                raise arguments.make_choice_error(
                    "key of the configuration", key, SUMMARIES
                ) from error
            raise UserError(str(error)) from error


def _resolve_configs(argv: list[str]) -> list[str]:
    """Replaces the name of a configuration by its file.

    Without --config, keys such as `--config.graph=...` change the quickstart.

    Raises:
      UserError: the configuration does not exist, or the file is not one.
    """
    names = [argument.partition("=")[0].lstrip("-") for argument in argv]
    if "config" not in names and any(name.startswith("config.") for name in names):
        argv = [*argv[:1], "--config=quickstart", *argv[1:]]
    resolved = list(argv)
    for i, argument in enumerate(resolved):
        flag, equals, value = argument.partition("=")
        if flag not in ("--config", "-config"):
            continue
        if equals:
            resolved[i] = f"{flag}={_find_config(value)}"
        elif i + 1 < len(resolved):
            resolved[i + 1] = str(_find_config(resolved[i + 1]))
    return resolved


def _find_config(text: str) -> Path:
    """Returns the file of a configuration.

    A bare name, such as 'hsdag', is an installed configuration. A user's file needs a path with a
    separator or the suffix .py: a bare name must not run code of the current folder.
    """
    is_path = text.endswith(".py") or "/" in text or os.sep in text
    installed = usage.CONFIGS / f"{text}.py"
    candidates = [Path(text), usage.CONFIGS.parent / text] if is_path else [installed]
    for candidate in filter(Path.is_file, candidates):
        try:
            runpy.run_path(str(candidate))["get_config"]()
        except Exception as error:  # of any type: the file is a program
            raise UserError(
                f"{str(candidate)!r} is not a configuration: {type(error).__name__}: {error}; pass "
                f"a file whose get_config() returns one, or one of {', '.join(usage.configs())}"
            ) from error
        return candidate
    raise arguments.make_choice_error("configuration", text, usage.configs())


def cli() -> None:
    """Runs absl with `parse` instead of its own parser, which prints the usage and exits with 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # its encoding may lack a character
            stream.reconfigure(errors="backslashreplace")
    argv = sys.argv[1:]
    if not argv:
        print(f"{usage.short_help(TASKS)}\n\n{usage.COMMAND} --help says more.", file=sys.stderr)
        sys.exit(2)
    if any(map(_HELP.fullmatch, argv)):
        print(usage.full_help(TASKS, faults.EXIT_CODES))
        sys.exit(0)
    app.run(main, flags_parser=parse)


if __name__ == "__main__":
    cli()
