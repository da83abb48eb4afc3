"""The timeline of one placement: the spans of work behind the value of each objective.

The simulators compute the latency of many placements at once. This module computes one schedule.
Its last span ends at the objective's value, up to the rounding of float32:

- `serial`: submodels one after another. A submodel has all operations that its device can run
  before another device must. Transfers and fusion losses come before it.
- `makespan`: one span per operation.
- `max_load`: the schedule of one single request, as under `makespan`. In a stream the busiest
  device sets the pace, so no span ends at the objective's value.
- `subgraph`: one span per accelerator, its communication included. The host is infinitely wide:
  its spans, one per operation, overlap.
"""

import collections
import itertools
from collections.abc import Callable

import chex
import jax
import numpy as np

from placement.analysis import segments
from placement.graphs import dag
from placement.problem import Problem
from placement.simulators import makespan, max_load
from placement.types import Span

_loads = jax.jit(max_load.compute_loads)
_times = jax.jit(makespan.compute_times)


def predict(problem: Problem, placement: np.ndarray) -> tuple[Span, ...]:
    """Predicts the spans of a placement int32 [K] that can run, by start, each operation in one."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    spans = _PREDICT[problem.objective](problem, problem.expand(np.asarray(placement)))
    return tuple(sorted(spans, key=lambda span: span.start_s))


def predict_segments(problem: Problem, placement: np.ndarray) -> tuple[Span, ...]:
    """Predicts the spans of the segments in which concurrent devices run a placement int32 [K]."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    cut = segments.cut(problem, placement)
    run = segments.schedule(problem, placement, cut)
    devices = problem.expand(np.asarray(placement))
    spans = [
        Span(int(devices[ops[0]]), tuple(ops.tolist()), float(start_s), float(finish_s))
        for ops, start_s, finish_s in zip(cut, run.start_s, run.finish_s, strict=True)
    ]
    return tuple(sorted(spans, key=lambda span: span.start_s))


def _serial(problem: Problem, op_devices: np.ndarray) -> list[Span]:
    graph, costs = problem.graph, problem.costs
    # The submodels in the order in which they run. A device continues as long as it can; then the
    # device with most ready operations follows.
    inputs = dag.InputCounts(graph.num_ops, graph.senders, graph.receivers)
    devices: list[int] = op_devices.tolist()
    ready: dict[int, collections.deque[int]] = collections.defaultdict(collections.deque)
    for op in inputs.sources():
        ready[devices[op]].append(op)
    submodels: list[list[int]] = []
    while any(ready.values()):
        device = max(ready, key=lambda d: len(ready[d]))
        ops = []
        while ready[device]:
            op = ready[device].popleft()
            ops.append(op)
            for reader in inputs.place(op):
                ready[devices[reader]].append(reader)
        submodels.append(ops)

    # Seconds of fusion losses and transfers before each operation. A tensor is transferred once to
    # a device, before the first operation there that reads it.
    source, target = op_devices[graph.senders], op_devices[graph.receivers]
    cut_edges = np.flatnonzero(source != target)
    fusion_loss_s = np.asarray(costs.fusion_loss_s, float)[cut_edges]
    waits_s = np.bincount(graph.receivers[cut_edges], fusion_loss_s, graph.num_ops)
    rank = np.argsort(np.concatenate(submodels))
    cut_edges = cut_edges[np.argsort(rank[graph.receivers[cut_edges]], kind="stable")]
    pairs = np.stack([graph.tensors[cut_edges], target[cut_edges]])
    first = cut_edges[np.unique(pairs, axis=1, return_index=True)[1]]
    transfer_s = problem.edge_transfer_s[first, source[first], target[first]]
    np.add.at(waits_s, graph.receivers[first], transfer_s)

    compute_s = np.asarray(costs.compute_s, np.float64)
    spans, clock_s = [], 0.0
    for ops in submodels:
        device = devices[ops[0]]
        start_s = clock_s + float(waits_s[ops].sum())
        clock_s = start_s + float(compute_s[ops, device].sum())
        spans.append(Span(device, tuple(ops), start_s, clock_s))
    return spans


def _makespan(problem: Problem, op_devices: np.ndarray) -> list[Span]:
    columns = np.asarray(op_devices, np.int32)[:, None]
    start_s, finish_s = (np.asarray(s)[:, 0] for s in _times(problem.makespan_tables, columns))
    order = problem.priority_order.tolist()  # also of spans that start at the same time
    return [
        Span(int(op_devices[op]), (op,), float(start_s[op]), float(finish_s[op])) for op in order
    ]


def _subgraph(problem: Problem, op_devices: np.ndarray) -> list[Span]:
    """Predicts the spans; the accelerators' parts must not wait for each other in a cycle."""
    graph, accelerator = problem.graph, np.asarray(problem.costs.accelerator)
    num_devices, ops = len(accelerator), np.arange(graph.num_ops)
    is_accelerated = accelerator[op_devices] >= 0
    # Nodes: the parts of accelerators by device, then the operations, of which the host's count.
    members = [ops[is_accelerated & (op_devices == d)].tolist() for d in range(num_devices)]
    members += [[] if part else [op] for op, part in enumerate(is_accelerated)]
    tables = max_load.build_tables(problem.costs, problem.tensor_blocks)
    columns = np.asarray(op_devices, np.int32)[:, None]
    load_s = np.asarray(_loads(tables, columns), np.float64)[:, 0]
    op_compute_s = np.asarray(problem.costs.compute_s, float)[ops, op_devices]
    busy_s = np.concatenate(
        [np.where(accelerator >= 0, load_s, 0.0), np.where(is_accelerated, 0.0, op_compute_s)]
    )
    node = np.where(is_accelerated, op_devices, num_devices + ops)
    turns = [  # of the parts of one accelerator
        (first, second)
        for first, second in itertools.combinations(range(num_devices), 2)
        if accelerator[first] == accelerator[second] >= 0
    ]
    earlier, later = np.array(turns, int).reshape(-1, 2).T
    senders = np.append(node[graph.senders], earlier)
    receivers = np.append(node[graph.receivers], later)
    crosses = senders != receivers
    senders, receivers = senders[crosses], receivers[crosses]
    starts, sources = dag.successors(len(members), receivers, senders)
    finish_s, spans = np.zeros(len(members)), []
    for number in dag.sort_nodes(len(members), senders, receivers).tolist():
        start = float(finish_s[sources[starts[number] : starts[number + 1]]].max(initial=0.0))
        finish_s[number] = start + busy_s[number]
        if members[number]:
            device = int(op_devices[members[number][0]])
            spans.append(Span(device, tuple(members[number]), start, float(finish_s[number])))
    return spans


_PREDICT: dict[str, Callable[[Problem, np.ndarray], list[Span]]] = {
    "serial": _serial,
    "makespan": _makespan,
    "max_load": _makespan,
    "subgraph": _subgraph,
}
