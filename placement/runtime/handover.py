"""What an operation costs as a submodel of its own, and what handing its inputs over costs.

Measured on the model itself with every operation a part of its own (`executor`): once with all of
them on each device, and once for each pair of devices with the operations on them in turn. No
placement is finer, so that whatever a cut loses shows: the start of a submodel, the fusion with a
neighbour, a layout that has to be made anew.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from placement.costs.tables import Crossings, Handovers
from placement.runtime.boundary import Boundary
from placement.runtime.split import Stretch
from placement.types import OpGraph

_INFERENCES = 20


def measure(
    measurer: Boundary, graph: OpGraph, groups: Sequence[Sequence[str]], able: np.ndarray
) -> Handovers:
    """Measures the model of `measurer` on its devices.

    Args:
      measurer: open.
      graph: M operations, in topological order: what is a part of its own.
      groups: the names in the model of each one's operations.
      able: bool [M, D]: the devices that can run it; what one cannot run another does meanwhile.

    Raises:
      ChildProcessError: the parts cannot be run.
    """
    computing = [i for i, group in enumerate(groups) if measurer.computed.intersection(group)]
    names = tuple(tuple(groups[i]) for i in computing)
    able = able[computing]
    before = _before(graph, computing)
    count = len(measurer.devices)
    alone_s = np.full((len(names), count), np.nan)
    for device in range(count):
        placement = np.where(able[:, device], device, able.argmax(axis=1))
        spans = _timeline(measurer, names, placement)
        taken_s = np.median(spans[:, :, 1] - spans[:, :, 0], axis=0)
        alone_s[:, device] = np.where(able[:, device], taken_s, np.nan)
    latency_s, s_per_byte = np.zeros((count, count)), np.zeros((count, count))
    for pair in itertools.combinations(range(count), 2):
        in_turn = np.array(pair)[np.arange(len(names)) % 2]
        placement = np.where(able[np.arange(len(names)), in_turn], in_turn, able.argmax(axis=1))
        spans = _timeline(measurer, names, placement)
        wait_s, per_byte = _crossing(spans, placement, alone_s, before)
        for i, j in (pair, pair[::-1]):
            latency_s[i, j], s_per_byte[i, j] = wait_s, per_byte
    return Handovers(names, alone_s, Crossings(latency_s, s_per_byte))


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
    measurer: Boundary, names: Sequence[tuple[str, ...]], placement: np.ndarray
) -> np.ndarray:
    """float64 [inferences, M, 2]."""
    stretches = [
        Stretch(measurer.devices[device].name, ops)
        for device, ops in zip(placement, names, strict=True)
    ]
    return measurer.timeline(stretches, inferences=_INFERENCES)


def _crossing(
    spans: np.ndarray, placement: np.ndarray, alone_s: np.ndarray, before: list[dict[int, int]]
) -> tuple[float, float]:
    """Seconds from the end of a part to the begin of its reader on another, idle device; and what
    reading a byte from there takes longer than reading it from the same device.
    """
    end_s = spans[:, :, 1]
    waits: list[float] = []
    rates: list[float] = []
    for part, sources in enumerate(before):
        apart = [source for source in sources if placement[source] != placement[part]]
        if not apart:
            continue
        own = [other for other in range(part) if placement[other] == placement[part]]
        free_s = end_s[:, own].max(axis=1, initial=0.0)
        there_s = end_s[:, list(sources)].max(axis=1)
        begin_s = spans[:, part, 0]
        idle = (free_s < there_s) & (end_s[:, apart].max(axis=1) == there_s)
        waits += (begin_s - there_s)[idle].tolist()
        more_s = np.median(end_s[:, part] - begin_s) - alone_s[part, placement[part]]
        rates.append(float(more_s) / sum(sources[source] for source in apart))
    wait_s, rate = (float(np.median(values)) if values else 0.0 for values in (waits, rates))
    return max(wait_s, 0.0), max(rate, 0.0)
