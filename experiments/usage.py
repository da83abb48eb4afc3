"""The help of the command line. What it says of a thing stands where the thing is defined.

Of tasks and configurations that is the first line of their module, which is read and not run: JAX
and OpenVINO take seconds to load.
"""

import ast
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs import common

CONFIGS = Path(common.__file__).parent
# The keys that `--help` shows: those that most commands change.
_MOST_USED = (
    *("graph", "devices", "method", "objective", "backend"),
    *("evaluate", "budget", "time_limit_s", "methods", "seed"),
)
_FLAGS = {
    "--verbosity=0": "-1 prints results and warnings alone, 1 details too",
    "--coordinator=HOST:PORT": "of process 0, where several learn as one (docs/DISTRIBUTED.md)",
    "--num_processes=N": "how many they are",
    "--process_id=I": "which of them this is, from 0",
}
_COMMAND = "python -m experiments.main"
_WIDEST = 100  # columns


def short(tasks: Sequence[str]) -> str:
    """Returns the usage and the tasks."""
    return "\n\n".join([_usage(), _tasks(tasks), f"{_COMMAND} --help says more."])


def full(tasks: Sequence[str], exit_codes: Mapping[int, str]) -> str:
    """Returns the usage, tasks, keys, exit codes and examples."""
    keys = {name: common.KEYS[name] for name in _MOST_USED}
    examples = (
        "--config=quickstart --workdir=runs/mine \\\n      --config.graph=model.onnx",
        "--config=solvers --task=solve --workdir=runs/solve",
    )
    return "\n\n".join(
        [
            _usage(),
            _tasks(tasks),
            "configurations (--config=NAME, or the path of one):\n"
            + textwrap.fill(", ".join(configs()), 78, initial_indent="  ", subsequent_indent="  "),
            "keys most used (--config.KEY=VALUE), with their defaults:\n"
            + listed({f"{n}={k.default}": k.summary for n, k in keys.items()}),
            "other flags:\n" + listed(_FLAGS),
            "exit codes:\n" + listed({str(code): text for code, text in exit_codes.items()}),
            "examples:\n" + "\n".join(f"  {_COMMAND} {flags}" for flags in examples),
            "--task=list prints graphs, methods, devices and configurations.",
        ]
    )


def listed(texts: Mapping[str, str], *, width: int | None = None) -> str:
    """Lists names and what they are, a line or more each.

    Args:
      texts: by name.
      width: at which lines are broken, by default that of the terminal; 0 breaks none.
    """
    if width is None:
        width = min(_WIDEST, shutil.get_terminal_size().columns)
    column = max(map(len, texts)) + 4
    lines = []
    for name, text in texts.items():
        rest = textwrap.wrap(text, max(20, width - column)) if width else [text]
        lines.append(f"  {name}".ljust(column) + (f"\n{' ' * column}").join(rest or [""]))
    return "\n".join(lines)


def configs() -> dict[str, str]:
    """Returns the configurations that are installed, and what they do."""
    files = sorted(CONFIGS.glob("[a-z]*.py"))
    return {file.stem: _first_line(file) for file in files if file != Path(common.__file__)}


def _usage() -> str:
    return (
        f"usage: {_COMMAND} --config=NAME --workdir=DIR [--task=place]\n"
        "       [--config.KEY=VALUE ...]"
    )


def _tasks(tasks: Sequence[str]) -> str:
    here = Path(__file__).parents[1] / "tasks"
    texts = {
        task: _first_line(here / f"{task}.py").removeprefix(f"The `{task}` task: ")
        for task in tasks
    }
    return "tasks:\n" + listed(texts)


def _first_line(file: Path) -> str:
    """Returns that of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")
