"""Metrics of a search as TensorBoard event files, one directory for each search.

An event's step is the number of evaluations. A search that resumes from a checkpoint writes a new
file, whose first event tells TensorBoard to discard all events after the checkpoint.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from placement import files
from placement.reporting import runs

# tensorboardX imports PyTorch if it is installed, which takes seconds, and needs none of it here.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
from tensorboardX.event_file_writer import EventsWriter  # noqa: E402
from tensorboardX.proto.event_pb2 import Event, SessionLog  # noqa: E402
from tensorboardX.proto.summary_pb2 import Summary  # noqa: E402
from tensorboardX.summary import make_histogram  # noqa: E402

if sys.modules["torch"] is None:
    del sys.modules["torch"]


class Events:
    """Writer of one search's events."""

    def __init__(self, directory: Path, *, first_evaluation: int):
        """Creates the file of a search that starts after so many evaluations."""
        self._directory = directory
        with files.naming(directory):
            runs.make_folder(directory.parent)
            prefix = runs.make_folder(directory) / "events"
            self._writer = EventsWriter(str(prefix), f".{time.time_ns()}")
        start = SessionLog(status=SessionLog.START)
        self._write(Event(step=first_evaluation + 1, session_log=start))

    def add(self, evaluations: int, values: Mapping[str, float | np.ndarray]) -> None:
        """Writes an event: finite numbers of tags as scalars, arrays of latencies as histograms."""
        summary = Summary()
        for tag, value in values.items():
            if isinstance(value, np.ndarray) and value.size:
                edges = np.linspace(value.min(), value.max() * (1 + 1e-6), 31)
                histogram = make_histogram(value.astype(np.float64), edges)
                summary.value.add(tag=tag, histo=histogram)
            elif not isinstance(value, np.ndarray) and np.isfinite(value):
                summary.value.add(tag=tag, simple_value=value)
        self._write(Event(step=evaluations, summary=summary))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        with files.naming(self._directory):
            self._writer.write_event(event)
            self._writer.flush()
