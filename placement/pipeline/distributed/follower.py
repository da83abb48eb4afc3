"""What every process but the first does: what process 0 does, and nothing of its own."""

import contextlib
from collections.abc import Callable
from typing import Any

from placement.pipeline import learned_search, method_runs
from placement.pipeline.distributed import processes
from placement.pipeline.tasks import pretrain

_KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "search": learned_search.follow,
    "pretrain": pretrain.follow,
    "zero_shot": method_runs.follow,
}


def run() -> None:
    """Follows process 0 until its task has ended.

    Raises:
      OSError: process 0 is lost.
    """
    while True:
        try:
            job = processes.broadcast()
        except processes.Stopped:
            return
        with contextlib.suppress(processes.Stopped):
            _KINDS[job["kind"]](job)
            processes.broadcast()  # raises, once process 0 is there too
