"""The entry point: flags, then the task.

python -m experiments.main --config=configs/quickstart.py --workdir=runs/quickstart

It exits with 0; with 2 if the command asks for what cannot be; with 3 if the machine failed (a full
disk, a device that is gone, a worker that dies of the baseline); with 130 if it was interrupted.
After 3 and 130, and after a kill, the same command goes on from what was saved.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags
from ml_collections import config_flags

CONFIGS = Path(__file__).parent.parent / "configs"
TASKS = ("place", "deploy", "compare", "solve", "profile", "report")

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The configuration file.", lock_config=True
)
_WORKDIR = flags.DEFINE_string("workdir", None, "The run directory.")
_TASK = flags.DEFINE_string("task", "place", f"One of {', '.join(TASKS)}.")


def main(argv: Sequence[str]) -> None:
    """Runs the task; what goes wrong by no fault of the program is one line and an exit code."""
    try:
        if len(argv) > 1:
            raise ValueError(f"unexpected argument {argv[1]!r}; flags look like --task=place")
        if _CONFIG.value is None or _WORKDIR.value is None:
            raise ValueError(
                "give --config=configs/NAME.py and --workdir=DIR, "
                "such as --config=configs/quickstart.py --workdir=runs/quickstart"
            )
        if _TASK.value not in TASKS:
            raise ValueError(f"unknown task {_TASK.value!r}; valid: {', '.join(TASKS)}")
        task = importlib.import_module(f"experiments.{_TASK.value}")
        task.run(_CONFIG.value, Path(_WORKDIR.value))
    except ValueError as error:
        refuse(error)
    except OSError as error:
        give_up(error)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from what this one saved", file=sys.stderr)
        sys.exit(130)


def parse(argv: list[str]) -> list[str]:
    """Parses flags; whatever is wrong with them is one line and exit code 2."""
    try:
        return flags.FLAGS(_with_installed_config(argv))
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, OSError) as error:
        refuse(error)


def refuse(error: Exception) -> NoReturn:
    """Prints the error's first line and exits with 2."""
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


def give_up(error: OSError) -> NoReturn:
    """Prints what failed, with the file if it is about one, and exits with 3."""
    where = f"{error.filename}: " if error.filename else ""
    cause = " ".join((error.strerror or str(error)).split())
    rest = "the same command goes on from what was saved"
    print(f"error: {where}{cause}; {rest}", file=sys.stderr)
    sys.exit(3)


def _with_installed_config(argv: list[str]) -> list[str]:
    """Takes configs/NAME.py from the installation where the working directory has none.

    Raises:
      ValueError: neither has it.
    """
    prefix = "--config="
    return [
        prefix + str(_existing(argument.removeprefix(prefix)))
        if argument.startswith(prefix)
        else argument
        for argument in argv
    ]


def _existing(path: str) -> Path:
    installed = Path(__file__).parent.parent / path
    for candidate in (Path(path), installed):
        if candidate.is_file():
            return candidate
    names = ", ".join(f"configs/{file.name}" for file in sorted(CONFIGS.glob("[a-z]*.py")))
    raise ValueError(f"no configuration {path!r}; give the path of one, such as {names}")


def cli() -> None:
    """Runs absl with `parse` in place of its own parser, which answers with usage and exit 1."""
    app.run(main, flags_parser=parse)


if __name__ == "__main__":
    cli()
