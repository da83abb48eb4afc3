"""What an operation costs as a submodel of its own, and what handing its inputs over costs.

Measured on the model itself with every operation a part of its own (`executor`): once with all of
them on each device, and once for each pair of devices with the operations on them in turn. No
placement is finer, so that whatever a cut loses shows: the start of a submodel, the fusion with a
neighbour, a layout that has to be made anew.

The model's tensors may all be tiny, and then say nothing of what a byte costs. So chains on tensors
of several sizes (`chains.chain`) are run in the same way, and first: they take a tenth of a
second, where a large model in parts may take longer to compile than there is time for.
"""

import itertools
import math
import time
from collections.abc import Iterator, Sequence

import numpy as np

from placement.costs import transfers
from placement.costs.tables import SubmodelCosts
from placement.costs.transfers import TransferFit
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import SideBySide, Timeline, TransferShapes
from placement.runtime.measurement.worker.chains import CHAIN_OPS, slower
from placement.types import OpGraph

_INFERENCES = 20

_Names = Sequence[tuple[str, ...]]
_Samples = list[tuple[float, float]]  # bytes and seconds, of tensors handed over


def measure(
    measurer: Measurer,
    graph: OpGraph,
    groups: Sequence[Sequence[str]],
    able: np.ndarray,
    limit_s: float = math.inf,
) -> tuple[SubmodelCosts, tuple[TransferFit, ...]]:
    """Measures the model of `measurer` on its devices.

    Args:
      measurer: open.
      graph: M operations, in topological order: what is a part of its own.
      groups: the names in the model of each one's operations.
      able: bool [M, D]: the devices that can run it; what one cannot run another does meanwhile.
      limit_s: wall time; what there is none left for is left out, and `measurer.conditions` says
        so. Of the chains the first is always run.

    Returns:
      What the parts cost, without those that ran nowhere; and what was handed over.

    Raises:
      ChildProcessError: the parts cannot be run.
    """
    until_s = time.monotonic() + limit_s
    computing = [i for i, group in enumerate(groups) if measurer.computed.intersection(group)]
    names = tuple(tuple(groups[i]) for i in computing)
    able = able[computing]
    samples: dict[tuple[int, int], _Samples] = {
        pair: [] for pair in itertools.combinations(range(len(measurer.devices)), 2)
    }
    copy_s_per_byte = _add_chains(measurer, samples, until_s)
    before = _before(graph, computing)
    alone_s = _alone(measurer, names, able, until_s)
    for pair, found in samples.items():
        _add(found, _in_turn(measurer, names, able, pair, until_s), alone_s, before)
    slowdown = _slowdown(measurer, names, able, until_s)
    fitted = tuple(transfers.fit(pair, s, copy_s_per_byte) for pair, s in samples.items())
    ran = np.isfinite(alone_s).any(axis=1)
    parts = tuple(name for name, once in zip(names, ran, strict=True) if once)
    between = transfers.matrices(fitted, len(measurer.devices))
    return SubmodelCosts(parts, alone_s[ran], slowdown[ran], between), fitted


def _add_chains(
    measurer: Measurer, samples: dict[tuple[int, int], _Samples], until_s: float
) -> float:
    """Adds samples of chains on tensors of several sizes; returns what copying a byte takes."""
    shapes, copy_s_per_byte = measurer.ask(TransferShapes())
    names = [(f"step_{i}",) for i in range(CHAIN_OPS)]
    able = np.ones((CHAIN_OPS, len(measurer.devices)), bool)
    last_s, last_bytes = 0.0, 1
    for number, shape in enumerate(shapes if samples else ()):
        begin_s, size = time.monotonic(), 4 * math.prod(shape)
        until = until_s if number else math.inf
        if begin_s + last_s * slower(size, last_bytes) > until:
            until = begin_s  # left out, as the measurer then notes
        before: list[dict[int, int]] = [{}, *({i: size} for i in range(CHAIN_OPS - 1))]
        alone_s = _alone(measurer, names, able, until, shape)
        for pair, found in samples.items():
            _add(found, _in_turn(measurer, names, able, pair, until, shape), alone_s, before)
        last_s, last_bytes = time.monotonic() - begin_s, size
    return copy_s_per_byte


def _alone(
    measurer: Measurer,
    names: _Names,
    able: np.ndarray,
    until_s: float,
    shape: tuple[int, ...] | None = None,
) -> np.ndarray:
    """Seconds of each part on each device, float64 [M, D]; nan where it does not or did not run.

    From the end of the part before: what starting a submodel takes is paid at every cut.
    """
    alone_s = np.full(able.shape, np.nan)
    for device in range(able.shape[1]):
        placement = np.where(able[:, device], device, able.argmax(axis=1))
        spans = _timeline(measurer, names, placement, until_s, shape)
        if len(spans):
            free_s = spans[:, :, 0].copy()
            follows = placement[1:] == placement[:-1]
            free_s[:, 1:][:, follows] = spans[:, :-1, 1][:, follows]
            taken_s = np.median(spans[:, :, 1] - free_s, axis=0)
            alone_s[:, device] = np.where(able[:, device], taken_s, np.nan)
    return alone_s


def _slowdown(measurer: Measurer, names: _Names, able: np.ndarray, until_s: float) -> np.ndarray:
    """How much longer each part takes on each device while the others compute, float64 [M, D].

    Relative; nan where it does not run, and where there was no time for it.
    """
    slowdown = np.full(able.shape, np.nan)
    num_devices = able.shape[1]
    if num_devices < 2 or not len(names):
        return slowdown
    placements = [np.where(able[:, d], d, able.argmax(axis=1)) for d in range(num_devices)]
    segments = tuple(_segments(measurer, names, placement) for placement in placements)
    left_s = max(0.0, until_s - time.monotonic())
    found = measurer.ask(SideBySide(measurer.devices, segments, _INFERENCES, left_s))
    for device, (alone_s, together_s) in enumerate(zip(*found, strict=True)):
        if len(alone_s) and len(together_s):
            longer = np.median(together_s, axis=0) / np.median(alone_s, axis=0) - 1
            slowdown[:, device] = np.where(able[:, device], longer, np.nan)
    return slowdown


def _in_turn(
    measurer: Measurer,
    names: _Names,
    able: np.ndarray,
    pair: tuple[int, int],
    until_s: float,
    shape: tuple[int, ...] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Spans of the parts on two devices in turn, and the placement that they are of."""
    parts = np.arange(len(names))
    turn = np.array(pair)[parts % 2]
    placement = np.where(able[parts, turn], turn, able.argmax(axis=1))
    return _timeline(measurer, names, placement, until_s, shape), placement


def _before(graph: OpGraph, computing: list[int]) -> list[dict[int, int]]:
    """For each part, those that it reads from and how many bytes."""
    number = {op: i for i, op in enumerate(computing)}
    before: list[dict[int, int]] = [{} for _ in computing]
    seen = set()
    for s, r, tensor, size in zip(
        graph.senders, graph.receivers, graph.tensors, graph.edge_bytes, strict=True
    ):
        if s in number and r in number and (tensor, r) not in seen:
            seen.add((tensor, r))
            sources = before[number[r]]
            sources[number[s]] = sources.get(number[s], 0) + int(size)
    return before


def _timeline(
    measurer: Measurer,
    names: _Names,
    placement: np.ndarray,
    until_s: float,
    shape: tuple[int, ...] | None,
) -> np.ndarray:
    """Float64 [inferences, M, 2]; no inferences where time is over, or nothing computes."""
    if not len(names):
        return np.empty((0, 0, 2))
    segments = _segments(measurer, names, placement)
    left_s = max(0.0, until_s - time.monotonic())
    return measurer.ask(Timeline(measurer.devices, segments, _INFERENCES, left_s, shape))


def _segments(measurer: Measurer, names: _Names, placement: np.ndarray) -> tuple[Segment, ...]:
    return tuple(
        Segment(measurer.devices[device].name, ops)
        for device, ops in zip(placement, names, strict=True)
    )


def _add(
    samples: _Samples,
    ran: tuple[np.ndarray, np.ndarray],
    alone_s: np.ndarray,
    before: list[dict[int, int]],
) -> None:
    """Adds bytes and seconds of the parts that read from another device: from the end of what they
    wait for to their own, beyond what they take where they read from their own device.

    How long they wait shows only while their device is idle; the others are taken to wait as long
    as those do.
    """
    spans, placement = ran
    found = [*_reads(spans, placement, alone_s, before)] if len(spans) else []
    waits = [wait_s for _, wait_s, _ in found if not math.isnan(wait_s)]
    usual_s = float(np.median(waits)) if waits else 0.0
    for size, wait_s, more_s in found:
        samples.append((size, (usual_s if math.isnan(wait_s) else wait_s) + more_s))


def _reads(
    spans: np.ndarray, placement: np.ndarray, alone_s: np.ndarray, before: list[dict[int, int]]
) -> Iterator[tuple[float, float, float]]:
    """Of each part that reads from another device: the bytes, the seconds that it waits, nan if
    its device is never idle, and those that it takes longer than alone.
    """
    end_s = spans[:, :, 1]
    for part, sources in enumerate(before):
        apart = [source for source in sources if placement[source] != placement[part]]
        once_s = alone_s[part, placement[part]]
        if not apart or math.isnan(once_s):
            continue
        own = [other for other in range(part) if placement[other] == placement[part]]
        free_s = end_s[:, own].max(axis=1, initial=0.0)
        there_s = end_s[:, list(sources)].max(axis=1)
        begin_s = spans[:, part, 0]
        idle = (free_s < there_s) & (end_s[:, apart].max(axis=1) == there_s)
        wait_s = float(np.median((begin_s - there_s)[idle])) if idle.any() else math.nan
        more_s = float(np.median(end_s[:, part] - begin_s) - once_s)
        yield float(sum(sources[source] for source in apart)), wait_s, more_s
