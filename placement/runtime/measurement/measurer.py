"""The measurement boundary of one model, on this machine or on a cluster."""

from collections.abc import Iterator
from typing import Protocol

from placement.runtime.devices import Device
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.request import Answer, Failure, Measure, Measurement, Request


class Measurer(Protocol):
    """A `local.LocalMeasurer`, or a `ClusterMeasurer` of several hosts."""

    devices: tuple[Device, ...]  # in the order of the indices of a placement
    computed_ops: frozenset[str]  # names of all operations but inputs and outputs
    fingerprint: str  # of everything that measurements depend on but devices and placement

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request on one machine, so that all parts of the answer can be compared.

        Raises:
          ChildProcessError: the measuring process does not start, or cannot run the request.
        """

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures candidates in chunks, each with the baseline, on hardware of one kind.

        Yields:
          The outcomes of a few candidates, by index. The first candidate is in every chunk unless
          it failed in the first chunk.

        Raises:
          ChildProcessError: no machine can measure any more.
        """

    def conditions(self) -> dict[str, Conditions]:
        """Returns the conditions of all measurements so far, by kind of request.

        The kinds are 'profile' (the model's costs) and 'measure' (placements). A kind is missing if
        it was never requested.
        """
