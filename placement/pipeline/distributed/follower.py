"""The work of every process but the first: it repeats the compiled steps of process 0."""

import contextlib
from collections.abc import Callable
from typing import Any

from placement.pipeline import learned_search, method_runs
from placement.pipeline.distributed import processes
from placement.pipeline.tasks import pretrain

_JOBS: dict[str, Callable[[dict[str, Any]], None]] = {
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
            _JOBS[job["kind"]](job)
            processes.broadcast()  # waits for process 0 to end the job, and then raises
