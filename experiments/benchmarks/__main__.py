"""Timed claims, measured side by side in one run.

    python -m experiments.benchmarks policy
    python -m experiments.benchmarks search [SECONDS ...]
    python -m experiments.benchmarks simulators
    python -m experiments.benchmarks learning
    python -m experiments.benchmarks devices
    python -m experiments.benchmarks scale [OPERATIONS ...]
    python -m experiments.benchmarks unseen POLICY
    python -m experiments.benchmarks gaps [FAMILY ...]
    python -m experiments.benchmarks documents [TABLE ...]

What each measures is said by its module, which is of the same name, that of `devices`
`experiments.benchmarks.jax_devices`.
"""

import sys
from collections.abc import Callable

from experiments.benchmarks import (
    gaps,
    jax_devices,
    learning,
    policy,
    scale,
    search,
    simulators,
    unseen,
)
from experiments.reproduction import documents
from placement.errors import UserError

BENCHMARKS: dict[str, Callable[..., None]] = {
    "policy": policy.run,
    "search": search.run,
    "simulators": simulators.run,
    "learning": learning.run,
    "devices": jax_devices.run,
    "scale": scale.run,
    "unseen": unseen.run,
    "gaps": gaps.run,
    "documents": documents.run,
}
_WITH_ARGUMENTS = ("search", "scale", "unseen", "gaps", "documents")


def main(argv: list[str]) -> None:
    """Runs the named benchmark, with what follows its name."""
    name, *given = argv[1:] or ["nothing"]
    try:
        if name not in BENCHMARKS or (given and name not in _WITH_ARGUMENTS):
            what = " ".join([name, *given])
            raise UserError(f"given {what!r}; give one of: {', '.join(BENCHMARKS)}")
        BENCHMARKS[name](*given)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv)
