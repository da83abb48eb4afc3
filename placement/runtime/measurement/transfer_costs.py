"""The cost of an operation as a separate submodel, and of transfers between submodels.

The costs are measured on the model itself, with every operation as a separate part (`executor`).
One run for each device has all operations on that device; one run for each pair of devices
alternates between the two. No placement is cut more finely, so these runs show every loss of a cut:
the launch of a submodel, the lost fusion with a neighbour and the conversion of a layout.

A model of more than `_MAX_PARTS` operations does not run in parts, whose compilation would take
many minutes: its transfers are those under HETERO, and a cut costs no launch.

A device whose memory is smaller than the weights never gets all parts at once. It gets consecutive
ones whose weights need at most a quarter of its memory (`CONSTANTS_SHARE`), and the plain CPU gets
the others; further runs have the next ones.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from placement.costs import transfers
from placement.costs.tables import SubmodelCosts
from placement.costs.transfers import TransferFit
from placement.runtime.devices import reference_device
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import CONSTANTS_SHARE
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import (
    CopyTime,
    Timeline,
    Transfers,
    TransferSamples,
)
from placement.types import OpGraph

_MAX_PARTS = 2000  # compiling a part takes about ten milliseconds


def measure(
    measurer: Measurer,
    graph: OpGraph,
    groups: Sequence[Sequence[str]],
    supported: np.ndarray,
) -> tuple[SubmodelCosts, tuple[TransferFit, ...]]:
    """Measures the model of `measurer` on its devices.

    Args:
      measurer: stays open during the call.
      graph: M operations in topological order, each a separate part.
      groups: for each of them, the names of its operations in the model.
      supported: bool [M, D], whether a device can run an operation. An operation that a device
        cannot run is given to another device.

    Returns:
      The costs of the parts that ran on some device, and the measured transfers.

    Raises:
      ChildProcessError: the parts cannot be run.
    """
    computing = [i for i, group in enumerate(groups) if measurer.computed_ops.intersection(group)]
    num_devices = len(measurer.devices)
    pairs = itertools.combinations(range(num_devices), 2)
    samples: TransferSamples = {pair: [] for pair in pairs}
    if len(computing) > _MAX_PARTS:
        samples, computing = measurer.ask(Transfers(measurer.devices)), []
    names = tuple(tuple(groups[i]) for i in computing)
    supported = supported[computing]

    # For each part, the parts that it reads and the bytes of each.
    position = {op: i for i, op in enumerate(computing)}
    source_bytes: list[dict[int, int]] = [{} for _ in computing]
    counted = set()
    for sender, receiver, tensor, num_bytes in zip(
        graph.senders, graph.receivers, graph.tensors, graph.edge_bytes, strict=True
    ):
        if sender in position and receiver in position and (tensor, receiver) not in counted:
            counted.add((tensor, receiver))
            sources = source_bytes[position[receiver]]
            sources[position[sender]] = sources.get(position[sender], 0) + int(num_bytes)

    weight_bytes = graph.weight_bytes[computing]
    compute_s: np.ndarray = np.empty(supported.shape)
    if names:
        compute_s = _measure_parts(measurer, names, supported, samples, source_bytes, weight_bytes)

    fits = fit(measurer, samples)
    has_run = np.isfinite(compute_s).any(axis=1)
    parts = tuple(name for name, ran in zip(names, has_run, strict=True) if ran)
    matrices = transfers.make_matrices(fits, num_devices)
    return SubmodelCosts(parts, compute_s[has_run], matrices), fits


def fit(measurer: Measurer, samples: TransferSamples) -> tuple[TransferFit, ...]:
    """Fits a line to the samples of each pair of devices."""
    copy_s_per_byte = measurer.ask(CopyTime())
    return tuple(
        transfers.fit_line(pair, pair_samples, copy_s_per_byte)
        for pair, pair_samples in samples.items()
    )


def _measure_parts(
    measurer: Measurer,
    names: Sequence[tuple[str, ...]],
    supported: np.ndarray,
    samples: TransferSamples,
    source_bytes: list[dict[int, int]],
    weight_bytes: np.ndarray,
) -> np.ndarray:
    """Runs M parts on each device, then alternating between the two devices of each pair.

    `names` has the operations of each part, `source_bytes` the parts that it reads and the bytes
    of each, and `weight_bytes` [M] the bytes of its weights.

    Returns the seconds of each part on each device, float64 [M, D], nan if it did not run there.
    They count from the end of the part before, so that they include the launch of a submodel. Adds
    the reads from the other device of each pair to `samples`.
    """
    devices, rest = measurer.devices, supported.argmax(axis=1)
    reference = reference_device()
    # The weights that a device may get at once; inf if it can hold all. The plain CPU runs what the
    # other devices cannot hold, so that it has no limit.
    limits_bytes = [
        math.inf
        if device.capacity_bytes is None
        or weight_bytes.sum() <= device.capacity_bytes
        or device.name == reference.name
        else CONSTANTS_SHARE * device.capacity_bytes
        for device in devices
    ]
    if np.isfinite(limits_bytes).any():
        device_names = [device.name for device in devices]
        if reference.name not in device_names:
            devices = (*devices, reference)
        rest = np.full(len(names), [device.name for device in devices].index(reference.name))

    def run(placement: np.ndarray) -> np.ndarray:
        """Returns float64 [inferences, M, 2]."""
        segments = tuple(
            Segment(devices[device].name, ops) for device, ops in zip(placement, names, strict=True)
        )
        return measurer.ask(Timeline(devices, segments))

    compute_s = np.full(supported.shape, np.nan)
    for device, limit_bytes in enumerate(limits_bytes):
        # One run has consecutive parts whose weights fit, or a single part.
        runs, run_bytes = [np.zeros(len(names), bool)], 0.0
        for part in np.flatnonzero(supported[:, device]):
            run_bytes += weight_bytes[part]
            if runs[-1].any() and run_bytes > limit_bytes:
                runs.append(np.zeros(len(names), bool))
                run_bytes = weight_bytes[part]
            runs[-1][part] = True
        for is_placed in runs:
            placement = np.where(is_placed, device, rest)
            timeline_s = run(placement)
            # A part can begin when its device has ended the part before. Where the part before ran
            # on another device, the part's own begin counts.
            free_s = timeline_s[:, :, 0].copy()
            is_same_device = placement[1:] == placement[:-1]
            free_s[:, 1:][:, is_same_device] = timeline_s[:, :-1, 1][:, is_same_device]
            durations_s = np.median(timeline_s[:, :, 1] - free_s, axis=0)
            compute_s[is_placed, device] = durations_s[is_placed]
    parts = np.arange(len(names))
    for pair, pair_samples in samples.items():
        alternating = np.array(pair)[parts % 2]
        is_placed = supported[parts, alternating]
        for device in pair:
            is_on_device = alternating == device
            is_placed &= ~is_on_device | (
                np.cumsum(weight_bytes * is_on_device) <= limits_bytes[device]
            )
        placement = np.where(is_placed, alternating, rest)
        pair_samples += _find_reads(run(placement), placement, compute_s, source_bytes)
    return compute_s


def _find_reads(
    timeline_s: np.ndarray,
    placement: np.ndarray,
    compute_s: np.ndarray,
    source_bytes: list[dict[int, int]],
) -> list[tuple[float, float]]:
    """Returns the bytes and seconds of each part that reads from another device.

    The seconds are the delay from the end of the last source to the begin of the part, plus the
    time that the part takes longer than with inputs from its own device. The delay shows only if
    the device is idle meanwhile. For parts whose device is never idle, it is the median of the
    others.
    """
    ends_s = timeline_s[:, :, 1]
    # The bytes, the delay (nan if unknown), and the additional time of computing.
    reads: list[tuple[float, float, float]] = []
    for part, sources in enumerate(source_bytes):
        device = placement[part]
        remote = [source for source in sources if placement[source] != device]
        # Operations that no device of the pair holds run on the plain CPU, device D.
        is_on_reference = max(placement[[part, *sources]]) >= compute_s.shape[1]
        if not remote or is_on_reference or math.isnan(compute_s[part, device]):
            continue
        earlier = [i for i in range(part) if placement[i] == device]
        free_s = ends_s[:, earlier].max(axis=1, initial=0.0)
        ready_s = ends_s[:, list(sources)].max(axis=1)
        begins_s = timeline_s[:, part, 0]
        # The device waited for its inputs, and the last of them came from another device.
        is_waiting = (free_s < ready_s) & (ends_s[:, remote].max(axis=1) == ready_s)
        delays_s = (begins_s - ready_s)[is_waiting]
        delay_s = float(np.median(delays_s)) if is_waiting.any() else math.nan
        longer_s = float(np.median(ends_s[:, part] - begins_s) - compute_s[part, device])
        num_bytes = float(sum(sources[source] for source in remote))
        reads.append((num_bytes, delay_s, longer_s))
    known_delays_s = [delay_s for _, delay_s, _ in reads if not math.isnan(delay_s)]
    usual_delay_s = float(np.median(known_delays_s)) if known_delays_s else 0.0
    return [
        (num_bytes, (usual_delay_s if math.isnan(delay_s) else delay_s) + longer_s)
        for num_bytes, delay_s, longer_s in reads
    ]
