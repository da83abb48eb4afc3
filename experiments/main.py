"""The entry point of the researchers' command line: parses flags and runs a task.

python -m experiments.main --config=quickstart --workdir=runs/quickstart

The process exits with one of `exits.EXIT_CODES`. After 3 or 130, or after a kill, the same command
continues from the saved state.
"""

import importlib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags
from ml_collections import config_flags

from experiments import usage
from placement import arguments
from placement.errors import UserError
from placement.pipeline.console import exits
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

_config_files: list[str] = []  # named by the command line

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The configuration: its name or its file.", lock_config=True
)
_WORKDIR = flags.DEFINE_string("workdir", None, "The run directory.")
_TASK = flags.DEFINE_string("task", "place", f"One of {', '.join(TASKS)}.")
_COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, of several.")
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Processes that train together.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "The number of this process, from 0.")


def main(argv: Sequence[str]) -> None:
    """Runs the task; an error becomes one line and one of `exits.EXIT_CODES`."""
    with exits.exit_on_error(_workdir()):
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
        if _has_process_flags():
            _run_distributed()
        else:
            _run()


def _workdir() -> Path | None:
    return Path(_WORKDIR.value) if _WORKDIR.value else None


def _run() -> None:
    # Imported late, as these modules load JAX and OpenVINO: help and mistakes print at once.
    task = importlib.import_module(f"placement.pipeline.tasks.{_TASK.value}")
    progress = importlib.import_module("placement.pipeline.console.progress")
    workdir = _workdir()
    settings = None if _CONFIG.value is None else Settings.from_mapping(_CONFIG.value)
    display = progress.Display(flags.FLAGS.verbosity)
    task.run(settings, workdir, display)
    if workdir is not None:
        importlib.import_module("placement.pipeline.console.faults").forget(workdir)


def _has_process_flags() -> bool:
    """Returns whether the flags make this process one of several.

    Raises:
      UserError: some of the three flags are missing.
    """
    values = {flag.name: flag.value for flag in (_COORDINATOR, _NUM_PROCESSES, _PROCESS_ID)}
    missing = [name for name, value in values.items() if value is None]
    if len(missing) == len(values):
        return False
    if missing:
        raise UserError(
            f"--{' and --'.join(missing)} missing; give each of several processes "
            "--coordinator=HOST:PORT --num_processes=N --process_id=I"
        )
    return True


def _run_distributed() -> None:
    # `follower` comes first: it loads OpenVINO, which forks, and JAX may not have threads by then.
    follower = importlib.import_module("placement.pipeline.distributed.follower")
    processes = importlib.import_module("placement.pipeline.distributed.processes")
    processes.join(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
    if _PROCESS_ID.value:
        # Ctrl-C often reaches all processes of a terminal: process 0 decides when all stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        follower.run()
        return
    with processes.stopping():
        _run()


def parse(argv: list[str]) -> list[str]:
    """Parses flags; a mistake in them becomes one line and exit code 2."""
    try:
        return flags.FLAGS(_resolve_configs(argv))
    except flags.UnrecognizedFlagError as error:
        exits.report_mistake(
            arguments.make_choice_error("flag", error.flagname, ("config", "workdir", "task"))
        )
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, OSError) as error:
        if error.args and isinstance(cause := error.args[0], KeyError):
            key = str(cause.args[0]).partition("\n")[0].strip("'")
            error = arguments.make_choice_error("key of the configuration", key, SUMMARIES)
        exits.report_mistake(_config_mistake(error) or error)
    except Exception as error:
        mistake = _config_mistake(error)
        if mistake is None:
            exits.report_fault(error, _workdir())
        exits.report_mistake(mistake)


def _config_mistake(error: Exception) -> UserError | None:
    """Returns the mistake in a configuration's file behind an error; None if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines: list[tuple[str | None, int | None]] = [(f.filename, f.lineno) for f in frames]
    lines += [(error.filename, error.lineno)] if isinstance(error, SyntaxError) else []
    config_lines = [(file, line) for file, line in lines if file in _config_files]
    has_no_function = isinstance(error, AttributeError) and error.name == "get_config"
    if not config_lines and not (has_no_function and _config_files):
        return None
    file, line = config_lines[-1] if config_lines else (_config_files[-1], None)
    position = f", line {line}" if line else ""
    cause = f"{type(error).__name__}: {error.args[0]}"
    if has_no_function:
        cause = "it has no get_config()"
    return UserError(
        f"{file!r}{position} is not a configuration: {cause}; give a Python file whose "
        f"get_config() returns one, or one of {', '.join(usage.configs())}"
    )


def _resolve_configs(argv: list[str]) -> list[str]:
    """Replaces the name of a configuration by its file.

    Without --config, keys such as `--config.graph=...` change the quickstart, or for
    --task=compare the configuration of that name.

    Raises:
      UserError: there is no such file and no installed configuration of that name.
    """
    names = [argument.partition("=")[0].lstrip("-") for argument in argv]
    if "config" not in names and any(name.startswith("config.") for name in names):
        is_comparison = re.search(r"(^| )--?task[= ]compare( |$)", " ".join(argv))
        default = "compare" if is_comparison else "quickstart"
        argv = [*argv[:1], f"--config={default}", *argv[1:]]
    resolved = list(argv)
    for i, argument in enumerate(resolved):
        flag, equals, value = argument.partition("=")
        if flag not in ("--config", "-config"):
            continue
        if equals:
            _config_files.append(str(_find_config(value)))
            resolved[i] = f"{flag}={_config_files[-1]}"
        elif i + 1 < len(resolved):
            _config_files.append(str(_find_config(resolved[i + 1])))
            resolved[i + 1] = _config_files[-1]
    return resolved


def _find_config(text: str) -> Path:
    """Returns the file of a configuration.

    A bare name, such as 'hsdag', is an installed configuration. A user's file needs a path with a
    separator or the suffix .py: a bare name must not run code of the current folder.
    """
    is_path = text.endswith(".py") or "/" in text or os.sep in text
    installed = usage.CONFIGS / f"{text}.py"
    candidates = [Path(text), usage.CONFIGS.parent / text] if is_path else [installed]
    for candidate in candidates:
        if candidate.is_file():
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
        print(usage.full_help(TASKS, exits.EXIT_CODES))
        sys.exit(0)
    app.run(main, flags_parser=parse)


if __name__ == "__main__":
    cli()
