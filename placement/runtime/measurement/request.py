"""What can be asked about a model on devices: a type for each question, with what answers it.

`Measurer.ask` answers all of them, on this machine or on a host of a cluster. Nothing here loads
JAX, which the process that measures does without.

What a number of a `Measurement` means. The candidates of one `Measure` are compiled, checked alone,
and then timed in rounds: in every round each candidate infers once, so that whatever slows the
machine down slows all of them, and the ratio of two candidates in one round is far steadier than
either time. The first candidate, or the first few, are the baselines of the ratios. Quoted are
medians with the exact binomial interval: of n sorted samples, the k-th from either end enclose the
median with probability

    1 - 2 P[Binomial(n, 1/2) < k],

whatever their distribution; k is the largest that keeps this at 95%. It takes samples for
independent, so that it says nothing about a drift longer than the measurement.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from placement.runtime.devices import Device
from placement.runtime.execution.hetero import Affinity
from placement.runtime.execution.split import Segment
from placement.runtime.models.outputs import Checked

if TYPE_CHECKING:
    from placement.costs.tables import DeviceProfile
    from placement.costs.transfers import TransferFit

MIN_SAMPLES = 6  # fewer have no 95% interval of the median
TIME_LIMIT = "time limit"  # stage of a failure for want of time, which may pass with more time

Answer = TypeVar("Answer", covariant=True)


class Candidate(NamedTuple):
    """What can be measured: a placement on devices."""

    affinity: Affinity | None  # None: HETERO's own choice; with one device, that device alone
    devices: tuple[Device, ...]
    # The affinity's devices work at the same time, each through its segments in turn; None: as
    # HETERO runs it.
    segments: tuple[Segment, ...] | None = None
    # Requests under way at once; None: as many as the device asks for. Of more than one the latency
    # is what each adds to a stream of them, the reciprocal of the throughput.
    num_requests: int | None = 1

    def used(self) -> tuple[Device, ...]:
        """Returns the devices that may compute."""
        if self.affinity is None:
            return self.devices
        names = set(self.affinity.values())
        return tuple(device for device in self.devices if device.name in names)


class Failure(NamedTuple):
    """A candidate that did not run, or not as it should."""

    # 'compile', 'request', 'infer', 'wrong output', 'threads', 'timeout', 'memory', 'crash' or
    # `TIME_LIMIT`
    stage: str
    cause: str  # one line


class Interval(NamedTuple):
    """A median and its 95% interval."""

    median: float
    low: float
    high: float
    n: int  # samples


class Measurement(NamedTuple):
    """A candidate that ran."""

    latency: Interval  # seconds
    ratio: Interval  # latency over the baseline's in the same round; nan if the baseline failed
    submodels: int
    overlap: float  # share of an inference during which several devices computed; 0 under HETERO
    parts: int | None  # connected sets of operations on one device; None if HETERO chose
    acyclic: bool | None  # the parts' graph; where it is not, OpenVINO splits parts
    execution_devices: tuple[str, ...]
    thread_share: float  # threads that were computing, or waiting for a core, on average
    output_error: float  # against the reference device, see `outputs.compare`
    nan_share: float  # of the output values, those that are NaN here and in the reference
    tolerance: float  # the output_error that would have been a failure
    compile_s: float
    ratios: tuple[Interval, ...] = ()  # to each of the baselines, the first being `ratio`


class Request(Generic[Answer]):
    """A question that `Measurer.ask` answers with an `Answer`."""

    def read(self, raw: Any) -> Answer:
        """Makes the answer of what the worker sends, which is the answer itself by default."""
        return raw


@dataclasses.dataclass(frozen=True)
class Measure(Request[list[Measurement | Failure]]):
    """Measures candidates against the first of them; answers what became of each, in order.

    Raises:
      ValueError: too few rounds, or more baselines than candidates.
    """

    candidates: Sequence[Candidate]  # the baselines first
    min_rounds: int  # inferences of each at least, `MIN_SAMPLES` or more
    # Rounds go on until their times sum to this; compiling and checking come on top.
    time_limit_s: float
    # Wall time of compiling and checking. The first candidate is always compiled; others that have
    # no time left fail at stage `TIME_LIMIT`.
    compile_s: float = math.inf
    # Candidates whose outputs are wrong are timed too, as `output_error` then tells: for questions
    # about time alone.
    accept_wrong: bool = False
    num_baselines: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.num_baselines <= max(1, len(self.candidates)):
            raise ValueError(f"{self.num_baselines} baselines of {len(self.candidates)} candidates")
        if self.min_rounds < MIN_SAMPLES:
            raise ValueError(f"min_rounds is {self.min_rounds}; give {MIN_SAMPLES} or more")


@dataclasses.dataclass(frozen=True)
class Profile(Request["tuple[DeviceProfile, ...]"]):
    """Asks what the model costs on each device, their inferences interleaved."""

    devices: tuple[Device, ...]
    seconds: float = 6.0  # of inference, over all devices
    # Wall time from now on; beyond it only an inference on each device is begun.
    limit_s: float = math.inf

    def read(self, raw: Any) -> "tuple[DeviceProfile, ...]":
        """Makes profiles of the worker's `profile.RawProfile`s."""
        from placement.costs.tables import DeviceProfile

        return tuple(
            DeviceProfile(device.label, *costs)
            for device, costs in zip(self.devices, raw, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class OutputErrors(Request[list[Checked]]):
    """Asks how far the outputs of each device are from the reference's, on all inputs.

    What it does not support runs on the plain CPU meanwhile.
    """

    devices: tuple[Device, ...]


@dataclasses.dataclass(frozen=True)
class Transfers(Request["tuple[TransferFit, ...]"]):
    """Asks what handing a tensor over costs under HETERO, a fit for each two devices.

    See `worker.chains.measure`.
    """

    devices: tuple[Device, ...]
    # Wall time from now on; beyond it only the smallest tensor is handed over.
    limit_s: float = math.inf

    def read(self, raw: Any) -> "tuple[TransferFit, ...]":
        """Fits lines to the worker's `chains.RawTransfers`."""
        from placement.costs import transfers

        return tuple(
            transfers.fit(pair, samples, raw.copy_s_per_byte)
            for pair, samples in raw.samples.items()
        )


@dataclasses.dataclass(frozen=True)
class TransferShapes(Request[tuple[list[tuple[int, ...]], float]]):
    """Asks for the shapes of chains of which `Timeline` takes one, those that tell most first.

    Beside them the answer has the seconds that copying a byte takes on the machine that measures.
    """


@dataclasses.dataclass(frozen=True)
class Timeline(Request[np.ndarray]):
    """Asks when the segments of a placement run, devices at the same time.

    The answer is float64 [inferences, P, 2]: begin and end of each part, seconds from the first
    begin. P counts the segments that compute anything, and is 0 where there are no inferences.
    """

    devices: tuple[Device, ...]  # those that the segments name, at least
    segments: tuple[Segment, ...]  # as `split.split` takes them
    inferences: int  # how many to look at
    # Wall time from now on, after which there are fewer of them, or none.
    limit_s: float = math.inf
    # Of tensors; then a chain of operations on them is run (`worker.chains.chain`), not the model.
    shape: tuple[int, ...] | None = None


class Slowdown(NamedTuple):
    """How long parts take on each of D devices, float64 [inferences, P] each."""

    alone_s: tuple[np.ndarray, ...]  # while the other devices idle
    together_s: tuple[np.ndarray, ...]  # while all of them compute


@dataclasses.dataclass(frozen=True)
class SideBySide(Request[Slowdown]):
    """Asks how long parts take while other devices compute too, the same model by themselves.

    The answer has no inferences where there was no time for any.
    """

    devices: tuple[Device, ...]
    segments: tuple[tuple[Segment, ...], ...]  # of the whole model for each device, P that compute
    inferences: int  # of each device
    limit_s: float = math.inf  # wall time from now on


@dataclasses.dataclass(frozen=True)
class SubmodelTimes(Request[list[tuple[tuple[str, ...], float]]]):
    """Asks how long each submodel of a placement computes under HETERO.

    The answer has the names of each submodel's nodes, operations of the model or not, and its
    seconds, in the order in which they run. What lies between two submodels is not counted.
    """

    candidate: Candidate  # without segments
    inferences: int  # to average over
    limit_s: float = math.inf  # wall time from now on; the answer is empty if it is too short


@dataclasses.dataclass(frozen=True)
class OwnChoice(Request[dict[str, str]]):
    """Asks what HETERO chooses where nothing is labelled: operation name -> device name."""

    devices: tuple[Device, ...]


def interval(samples: np.ndarray) -> Interval:
    """Returns the median of samples and its 95% interval.

    Args:
      samples: float [n].

    Raises:
      ValueError: fewer than `MIN_SAMPLES` samples.
    """
    count = len(samples)
    if count < MIN_SAMPLES:
        raise ValueError(f"{count} samples have no 95% interval; take {MIN_SAMPLES} or more")
    ordered = np.sort(samples)
    rank = _rank(count)
    return Interval(
        float(np.median(ordered)), float(ordered[rank - 1]), float(ordered[-rank]), count
    )


@functools.cache
def _rank(count: int) -> int:
    """The largest k with P[Binomial(count, 1/2) < k] <= 2.5%, in integers, hence exact."""
    term, total, k = 1, 1, 0  # total = sum of C(count, i) for i <= k
    while 40 * total <= 2**count:
        term = term * (count - k) // (k + 1)
        k += 1
        total += term
    return k
