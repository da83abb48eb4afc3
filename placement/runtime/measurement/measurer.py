"""What a search on devices is given: the measurement boundary of one model, wherever it is."""

from collections.abc import Iterator
from typing import Protocol

from placement.runtime.devices import Device
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.request import Answer, Failure, Measure, Measurement, Request


class Measurer(Protocol):
    """A `local.LocalMeasurer`, or a `ClusterMeasurer` of several hosts."""

    devices: tuple[Device, ...]  # what placements are on, in the order of their indices
    computed: frozenset[str]  # names of the operations that are neither inputs nor outputs
    fingerprint: str  # of what measurements depend on beside devices and placement

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request, all of it on one machine, so that what it tells can be compared.

        Raises:
          ChildProcessError: nobody can answer: what measures does not start, or what is asked for
            cannot be run.
        """

    def parts(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures a few candidates at a time, beside the first of all on hardware of one kind.

        Yields:
          What became of a few of the candidates, by index. The first of all is among each few
          unless it failed among the first.

        Raises:
          ChildProcessError: nobody can measure any more.
        """

    def conditions(self) -> dict[str, Conditions]:
        """Returns those so far under which was measured: 'profile', costs, 'measure', placements.

        A key is missing where there was no such request.
        """
