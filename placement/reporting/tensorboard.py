"""Metrics of a search as TensorBoard event files, one directory for each search.

An event holds the metrics of one step: numbers as scalars, latencies as a histogram. Its step is
the number of evaluations so far. A search that resumes from a checkpoint writes a new file, whose
first event tells TensorBoard to discard all events after the checkpoint.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from placement import files
from placement.reporting import runs

# tensorboardX imports PyTorch if it is installed, which takes seconds, and needs none of it here.
_HIDES_TORCH = "torch" not in sys.modules
if _HIDES_TORCH:
    sys.modules["torch"] = None  # type: ignore[assignment]
try:
    from tensorboardX.proto import event_pb2, summary_pb2
    from tensorboardX.record_writer import RecordWriter
    from tensorboardX.summary import make_histogram
finally:
    if _HIDES_TORCH:
        del sys.modules["torch"]


class Events:
    """Writer of one search's events. The file is created with the first event."""

    def __init__(self, directory: Path, *, first_evaluation: int):
        """Prepares the events of a search that starts after so many evaluations."""
        self._path = directory / f"events.out.tfevents.{time.time_ns()}"
        self._first_evaluation = first_evaluation
        self._file: RecordWriter | None = None

    def add(
        self, evaluations: int, numbers: Mapping[str, float], latencies_s: Mapping[str, np.ndarray]
    ) -> None:
        """Writes one event.

        Args:
          evaluations: the number of evaluations so far, which is the event's step.
          numbers: tag -> number; those that are not finite are left out.
          latencies_s: tag -> finite latencies; empty arrays are left out.

        Raises:
          OSError: the file cannot be written; the error names it.
        """
        make_value = summary_pb2.Summary.Value
        values = [make_value(tag=t, simple_value=x) for t, x in numbers.items() if np.isfinite(x)]
        for tag, seconds in latencies_s.items():
            if seconds.size:
                low_s, high_s = float(seconds.min()), float(seconds.max())
                edges_s = np.linspace(low_s, max(high_s, low_s * (1 + 1e-6)), 31)
                histogram = make_histogram(seconds.astype(np.float64), edges_s)
                values.append(make_value(tag=tag, histo=histogram))
        events = [event_pb2.Event(step=evaluations, summary=summary_pb2.Summary(value=values))]
        with files.naming(self._path):
            if self._file is None:
                for directory in (self._path.parent.parent, self._path.parent):
                    runs.make_folder(directory)
                self._file = RecordWriter(str(self._path))
                start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                events[:0] = [
                    event_pb2.Event(file_version="brain.Event:2"),
                    event_pb2.Event(step=self._first_evaluation + 1, session_log=start),
                ]
            for event in events:
                event.wall_time = time.time()
                self._file.write(event.SerializeToString())

    def flush(self) -> None:
        """Flushes written events to the disk; an `OSError` names the file."""
        if self._file is not None:
            with files.naming(self._path):
                self._file.flush()

    def close(self) -> None:
        """Flushes and closes the file; later events are written to a new one."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
