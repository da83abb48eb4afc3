"""Benchmarks of speed and of solution quality; each compares its alternatives within one run.

    python -m experiments.benchmarks simulators
    python -m experiments.benchmarks compile [METHOD ...]
    python -m experiments.benchmarks search [METHOD ...]
    python -m experiments.benchmarks scale [OPERATIONS ...]
    python -m experiments.benchmarks unseen POLICY

The module of the same name describes each benchmark.
"""

import sys
from collections.abc import Callable

from experiments.benchmarks import compilation, scale, search, simulators, unseen
from placement.errors import UserError
from placement.pipeline.console import faults

BENCHMARKS: dict[str, Callable[..., None]] = {
    "simulators": simulators.run,
    "compile": compilation.run,
    "search": search.run,
    "scale": scale.run,
    "unseen": unseen.run,
}


def main(argv: list[str]) -> None:
    """Runs the benchmark that the command line names, with the arguments after the name."""
    name, *values = argv[1:] or ["nothing"]
    try:
        if name not in BENCHMARKS or (values and name == "simulators"):
            text = " ".join([name, *values])
            raise UserError(f"given {text!r}; pass one of: {', '.join(BENCHMARKS)}")
        BENCHMARKS[name](*values)
    except UserError as error:
        faults.exit_with(2, f"error: {error}")


if __name__ == "__main__":
    main(sys.argv)
