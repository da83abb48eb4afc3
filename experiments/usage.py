"""The help of the command line.

Tasks and configurations are described by the first line of their module's docstring. The modules
are parsed and not imported: JAX and OpenVINO take seconds to load.
"""

import ast
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs import common
from placement import pipeline
from placement.pipeline.console.columns import format_two_columns
from placement.pipeline.settings import SUMMARIES, Settings

CONFIGS = Path(common.__file__).parent
# The keys that `--help` shows.
_MOST_USED = (
    *("graph", "devices", "method", "objective", "backend"),
    *("evaluate", "budget", "time_limit_s", "methods", "seed"),
)
_FLAGS = {
    "--verbosity=0": "-1 prints results and warnings alone, 1 details too",
}
COMMAND = "python -m experiments.main"


def short_help(tasks: Sequence[str]) -> str:
    """Returns the usage and the tasks."""
    folder = Path(pipeline.__file__).parent
    texts = {
        task: _first_line(folder / f"{task}.py").removeprefix(f"The `{task}` task: ")
        for task in tasks
    }
    return (
        f"usage: {COMMAND} --config=NAME --workdir=DIR [--task=place]\n"
        "       [--config.KEY=VALUE ...]\n\n"
        f"tasks:\n{format_two_columns(texts)}"
    )


def full_help(tasks: Sequence[str], exit_codes: Mapping[int, str]) -> str:
    """Returns the usage, tasks, keys, exit codes and examples."""
    defaults = Settings().to_dict()
    keys = {f"{name}={defaults[name]}": SUMMARIES[name] for name in _MOST_USED}
    examples = (
        "--config=quickstart --workdir=runs/mine \\\n      --config.graph=model.onnx",
        "--config=solvers --task=solve --workdir=runs/solve",
    )
    return "\n\n".join(
        [
            short_help(tasks),
            "configurations (--config=NAME, or the path of one):\n"
            + textwrap.fill(", ".join(configs()), 78, initial_indent="  ", subsequent_indent="  "),
            "keys most used (--config.KEY=VALUE), with their defaults:\n"
            + format_two_columns(keys),
            "other flags:\n" + format_two_columns(_FLAGS),
            "exit codes:\n"
            + format_two_columns({str(code): text for code, text in exit_codes.items()}),
            "examples:\n" + "\n".join(f"  {COMMAND} {flags}" for flags in examples),
            "--task=list prints graphs, methods, devices and objectives.",
        ]
    )


def configs() -> dict[str, str]:
    """Returns the first line of each installed configuration, by name."""
    files = sorted(CONFIGS.glob("[a-z]*.py"))
    return {file.stem: _first_line(file) for file in files if file != Path(common.__file__)}


def _first_line(file: Path) -> str:
    """Returns the first line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")
