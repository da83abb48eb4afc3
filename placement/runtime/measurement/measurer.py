"""What a search on devices is given: the measurement boundary of one model, wherever it is."""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from placement.costs.tables import DeviceProfile
from placement.costs.transfers import TransferFit
from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.local import Candidate, Measurement
from placement.runtime.measurement.process import Failure
from placement.runtime.models.outputs import Checked


class Measurer(Protocol):
    """A `measure.LocalMeasurer`, where the methods are explained, or `spread.ClusterMeasurer`."""

    devices: tuple[Device, ...]
    computed: frozenset[str]
    fingerprint: str

    def measure(
        self,
        candidates: Sequence[Candidate],
        *,
        min_rounds: int,
        time_limit_s: float,
        accept_wrong: bool = False,
    ) -> list[Measurement | Failure]:
        """All on one machine, so that their ratios and intervals can be compared."""

    def parts(
        self,
        candidates: Sequence[Candidate],
        *,
        min_rounds: int,
        time_limit_s: float,
        accept_wrong: bool = False,
    ) -> Iterator[dict[int, Measurement | Failure]]:
        """A few at a time, each few beside the first of all on a machine of the same hardware."""

    def profile(
        self,
        devices: Sequence[Device] | None = None,
        *,
        seconds: float = 6.0,
        limit_s: float = math.inf,
    ) -> tuple[DeviceProfile, ...]:
        """What the model costs on each device."""

    def output_errors(self, devices: Sequence[Device]) -> list[Checked]:
        """How far the outputs of each device are from the reference's."""

    def transfers(self, *, limit_s: float = math.inf) -> tuple[TransferFit, ...]:
        """What handing a tensor from device to device costs."""

    def transfer_shapes(self) -> tuple[list[tuple[int, ...]], float]:
        """Shapes of chains that `timeline` takes, and what copying a byte takes."""

    def timeline(
        self,
        segments: Sequence[Segment],
        *,
        inferences: int,
        limit_s: float = math.inf,
        shape: tuple[int, ...] | None = None,
    ) -> np.ndarray:
        """When the segments of a placement run."""

    def conditions(self) -> dict[str, Conditions]:
        """Those under which everything was measured so far."""

    def submodel_times(
        self, candidate: Candidate, *, inferences: int
    ) -> list[tuple[tuple[str, ...], float]]:
        """How long each submodel of a placement computes under HETERO."""

    def own_choice(self) -> dict[str, str]:
        """What HETERO chooses where nothing is labelled."""
