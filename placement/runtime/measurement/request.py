"""Requests about a model on devices: one type for each question, with the type of its answer.

`Measurer.ask` answers all of them, on this machine or on a host of a cluster. This module does not
load JAX, because the measuring process runs without it.

How the candidates of one `Measure` are timed: each is compiled and checked alone, then all are
timed in rounds. Every candidate runs one inference per round, so that a disturbance of the machine
slows all of them down. The ratio of two candidates in one round is therefore far steadier than
either latency. The first candidate, or the first few, are the baselines of the ratios.

In a race, most rounds go to promising candidates (successive halving; Jamieson and Talwalkar 2016).
After each stage of a few rounds only the faster half of the candidates stays, by the median ratio
to the first one, and none that is clearly slower than it.

Otherwise all candidates run until it is clear which one is the fastest, or time is over
(`is_decided`). An idle machine needs few rounds, a noisy one many.

The statistic is the median of n samples with its exact binomial interval. The k-th smallest and the
k-th largest sample enclose the median of any distribution with probability

    1 - 2 P[Binomial(n, 1/2) < k],

and k is the largest number for which this is at least 95%. The interval assumes independent
samples; it says nothing about a drift that is longer than the measurement.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from placement.runtime.devices import Device
from placement.runtime.execution.hetero import Affinity
from placement.runtime.execution.split import Segment
from placement.runtime.models.outputs import OutputCheck
from placement.runtime.models.support import UnsupportedOp

MIN_SAMPLES = 6  # the median of fewer samples has no 95% interval
_CLEAR = 1.02  # factor between intervals that are apart; of the ends of a narrow one
TIME_LIMIT = "time limit"  # the stage of a failure that a longer time limit may avoid

Answer = TypeVar("Answer", covariant=True)

# Indices of two devices -> bytes and seconds of transfers between them, in both directions.
TransferSamples = dict[tuple[int, int], list[tuple[float, float]]]


class Candidate(NamedTuple):
    """A placement on devices, to be measured."""

    affinity: Affinity | None  # None: HETERO chooses; with one device, the model runs on that one
    devices: tuple[Device, ...]
    # If given, the devices work at the same time, each through its segments in order. None: HETERO
    # runs the affinity.
    segments: tuple[Segment, ...] | None = None
    # Requests in flight at once; None: as many as the device asks for. With more than one, the
    # latency is the time that each request adds to a stream, the reciprocal of the throughput.
    num_requests: int | None = 1

    def used_devices(self) -> tuple[Device, ...]:
        """Returns the devices that may compute."""
        if self.affinity is None:
            return self.devices
        names = set(self.affinity.values())
        return tuple(device for device in self.devices if device.name in names)


class Failure(NamedTuple):
    """The outcome of a candidate that did not run, or computed wrong outputs."""

    # 'compile', 'request', 'infer', 'wrong output', 'threads', 'timeout', 'crash', 'memory' or
    # `TIME_LIMIT`
    stage: str
    cause: str  # one line


class Interval(NamedTuple):
    """A median and its 95% interval."""

    median: float
    low: float
    high: float
    n: int  # number of samples


class Measurement(NamedTuple):
    """The outcome of a candidate that ran."""

    latency: Interval  # seconds
    ratio: Interval  # latency over the first baseline's in the same round; nan if that failed
    submodels: int
    output_error: float  # against the reference device, see `outputs.compare`
    tolerance: float  # the largest accepted output_error
    compile_s: float
    ratios: tuple[Interval, ...] = ()  # to each of the baselines; the first is `ratio`


class RawProfile(NamedTuple):
    """The fields of `costs.tables.DeviceProfile` except its device."""

    latency_s: float
    kernels: tuple[tuple[tuple[str, ...], float], ...]
    unsupported: frozenset[str]


class Request(Generic[Answer]):
    """A question that `Measurer.ask` answers with an `Answer`."""


@dataclasses.dataclass(frozen=True)
class Measure(Request[list[Measurement | Failure]]):
    """Measures candidates against the baselines; the answer has one outcome per candidate."""

    candidates: Sequence[Candidate]  # the baselines first
    # Fewest inferences of each candidate; in a race those of a stage. Intervals need `MIN_SAMPLES`.
    min_rounds: int
    # Limit on the time of the rounds, which end before it once they are decided; the stages of a
    # race last as long. Compiling and checking are not included.
    time_limit_s: float
    # Limit on the wall time of compiling and checking. The first candidate is always compiled;
    # candidates for which no time is left fail at stage `TIME_LIMIT`.
    compile_s: float = math.inf
    num_baselines: int = 1
    race: bool = False  # the checks are short, and slow candidates leave early


@dataclasses.dataclass(frozen=True)
class Profile(Request[list[RawProfile]]):
    """Asks for the model's costs on each device, measured in interleaved inferences."""

    devices: tuple[Device, ...]


@dataclasses.dataclass(frozen=True)
class Reasons(Request[list[UnsupportedOp]]):
    """Asks why operations cannot run on a device; the answer has one entry for each operation."""

    device: Device
    names: frozenset[str]  # of the operations


@dataclasses.dataclass(frozen=True)
class OutputErrors(Request[list[OutputCheck]]):
    """Asks for the error of each device's outputs on all inputs, against the reference device.

    Operations that a device does not support run on the plain CPU.
    """

    devices: tuple[Device, ...]


@dataclasses.dataclass(frozen=True)
class PlacementError(Request[OutputCheck]):
    """Asks for the error of a placement's outputs, against the reference device."""

    candidate: Candidate  # without segments


@dataclasses.dataclass(frozen=True)
class Transfers(Request[TransferSamples]):
    """Asks for the times of tensor transfers under HETERO (`worker.chains.measure_transfers`)."""

    devices: tuple[Device, ...]


@dataclasses.dataclass(frozen=True)
class CopyTime(Request[float]):
    """Asks for the seconds that copying one byte takes within the measuring machine."""


@dataclasses.dataclass(frozen=True)
class Timeline(Request[np.ndarray]):
    """Asks for the begin and end of each segment of a placement whose devices overlap.

    The answer is float64 [inferences, P, 2]: begin and end of each part, in seconds from the first
    begin. P counts the segments that compute anything.
    """

    devices: tuple[Device, ...]  # includes those that the segments name
    segments: tuple[Segment, ...]  # see `split.split_model`


@dataclasses.dataclass(frozen=True)
class SubmodelTimes(Request[list[tuple[tuple[str, ...], float]]]):
    """Asks for the compute time of each submodel of a placement under HETERO.

    The answer lists (names of the submodel's nodes, seconds) in execution order. The nodes need not
    be operations of the model. Time between two submodels is not included.
    """

    candidate: Candidate  # without segments


@dataclasses.dataclass(frozen=True)
class HeteroChoice(Request[dict[str, str]]):
    """Asks for HETERO's own placement, when nothing is labelled: operation name -> device name."""

    devices: tuple[Device, ...]
    # Whether HETERO splits the model by the devices' memory (MODEL_DISTRIBUTION_POLICY).
    split_by_memory: bool = False


def median_interval(samples: np.ndarray) -> Interval:
    """Returns the median of samples, float [n], and its 95% interval.

    The interval of fewer than `MIN_SAMPLES` samples is their range, which is less certain.
    """
    count, ordered = len(samples), np.sort(samples)
    # The largest k with P[Binomial(count, 1/2) < k] <= 2.5%, such as 40 for 100 samples. Python's
    # integers make it exact: binomial = C(count, k), cumulative = sum of C(count, i) for i <= k.
    binomial, cumulative, rank = 1, 1, 0
    while 40 * cumulative <= 2**count:
        binomial = binomial * (count - rank) // (rank + 1)
        rank += 1
        cumulative += binomial
    rank = max(rank, 1)
    return Interval(
        float(np.median(ordered)), float(ordered[rank - 1]), float(ordered[-rank]), count
    )


def is_decided(intervals: Sequence[Interval]) -> bool:
    """Returns whether it is clear which of several medians is the least, or that some are equal.

    Every interval lies 2% above that of the least median, or both are narrower than 2%. The margin
    keeps repeated looks from finding a difference by chance.
    """
    least = min(intervals)
    return all(
        interval.low > _CLEAR * least.high
        or max(interval.high / interval.low, least.high / least.low) < _CLEAR
        for interval in intervals
        if interval is not least
    )
