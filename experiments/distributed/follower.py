"""What every process but the first does: what process 0 tells it, and nothing of its own."""

from collections.abc import Callable
from typing import Any

from experiments import methods, search
from experiments.distributed import processes
from experiments.tasks import pretrain

_KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "search": search.follow,
    "pretrain": pretrain.follow,
    "zero_shot": methods.follow,
}


def run() -> None:
    """Follows process 0 until its task has ended.

    Raises:
      OSError: process 0 is lost.
    """
    while True:
        try:
            told = processes.hear()
        except processes.Stopped:
            return
        try:
            _KINDS[told["kind"]](told)
            processes.hear()  # that it is over
        except processes.Stopped:
            continue
