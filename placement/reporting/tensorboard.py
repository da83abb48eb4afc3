"""Metrics of a search as TensorBoard event files, one directory for each search.

An event holds the metrics of one step: numbers as scalars, latencies as a histogram. Its step is
the number of evaluations so far. Events are written by the calling thread: they are few, and the
caller learns of a write that fails, as on a full disk.

A search that resumes from a checkpoint writes a new file. Its first event tells TensorBoard to
discard all events after the checkpoint.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from placement import files
from placement.reporting import runs


@contextlib.contextmanager
def _torch_hidden() -> Iterator[None]:
    """Makes importing PyTorch fail in the block, unless it has been imported already."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


# tensorboardX imports PyTorch if it is installed, which takes seconds, and needs none of it here.
with _torch_hidden():
    from tensorboardX.proto import event_pb2, summary_pb2
    from tensorboardX.record_writer import RecordWriter
    from tensorboardX.summary import make_histogram


class Events:
    """Writer of one search's events. The file is created with the first event."""

    def __init__(self, directory: Path, *, first_evaluation: int):
        """Prepares the events of a search that starts after so many evaluations."""
        self._directory = directory
        self._first_evaluation = first_evaluation
        self._path = directory / f"events.out.tfevents.{time.time_ns()}"
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
        values = [
            summary_pb2.Summary.Value(tag=tag, simple_value=number)
            for tag, number in numbers.items()
            if np.isfinite(number)
        ] + [
            summary_pb2.Summary.Value(tag=tag, histo=_histogram(seconds.astype(np.float64)))
            for tag, seconds in latencies_s.items()
            if seconds.size
        ]
        summary = summary_pb2.Summary(value=values)
        self._write(event_pb2.Event(wall_time=time.time(), step=evaluations, summary=summary))

    def flush(self) -> None:
        """Flushes written events to the disk.

        Raises:
          OSError: the file cannot be written; the error names it.
        """
        if self._file is not None:
            with files.naming(self._path):
                self._file.flush()

    def close(self) -> None:
        """Closes the file; later events are written to a new one."""
        if self._file is not None:
            self.flush()
            self._file.close()
            self._file = None

    def _write(self, event: event_pb2.Event) -> None:
        with files.naming(self._path):
            if self._file is None:
                runs.make_folder(self._directory.parent)
                runs.make_folder(self._directory)
                self._file = RecordWriter(str(self._path))
                self._begin()
            self._file.write(event.SerializeToString())

    def _begin(self) -> None:
        assert self._file is not None
        began = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        for event in (
            event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"),
            event_pb2.Event(
                wall_time=time.time(), step=self._first_evaluation + 1, session_log=began
            ),
        ):
            self._file.write(event.SerializeToString())


def _histogram(latencies_s: np.ndarray) -> summary_pb2.HistogramProto:
    """Makes the histogram of float64 [k]; 30 bins, one of them for equal latencies."""
    low_s, high_s = latencies_s.min(), latencies_s.max()
    edges_s = np.linspace(low_s, max(high_s, low_s * (1 + 1e-6)), 31)
    return make_histogram(latencies_s, edges_s)
