"""Reads event files as TensorBoard does."""

import struct
from collections.abc import Iterator
from pathlib import Path

from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c


def records(path: Path) -> Iterator[event_pb2.Event]:
    """The events of one file, whose checksums hold; one that a kill cut short is none."""
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        (length,), (check,) = (struct.unpack_from(f, data, at + o) for f, o in (("Q", 0), ("I", 8)))
        if at + 16 + length > len(data):
            return
        assert check == masked_crc32c(data[at : at + 8])
        content = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("I", data, at + 12 + length) == (masked_crc32c(content),)
        yield event_pb2.Event.FromString(content)
        at += 16 + length


def read(directory: Path) -> list[event_pb2.Event]:
    """The events of a run that count: the start of a session voids what is at or after its step."""
    kept: list[event_pb2.Event] = []
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for event in records(path):
            if event.session_log.status == event_pb2.SessionLog.START:
                kept = [before for before in kept if before.step < event.step]
            elif event.HasField("summary"):
                kept.append(event)
    return kept


def scalars(directory: Path, tag: str) -> list[tuple[int, float]]:
    """Step and value of a tag, in the order of the events."""
    return [
        (event.step, value.simple_value)
        for event in read(directory)
        for value in event.summary.value
        if value.tag == tag and value.HasField("simple_value")
    ]
