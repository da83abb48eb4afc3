"""The `makespan` objective: submodels on different devices overlap.

Each device runs its operations one at a time in a fixed order of priority; an operation starts when
its device is free and its inputs have arrived:

    start(v)   = max( finish of the operation before v on p[v],
                      max over edges e = (u, v) of finish(u) + delay(e) )
    finish(v)  = start(v) + compute_s[v, p[v]]
    delay(e)   = 0 where p[u] = p[v], else transfer_s[e, p[u], p[v]] + fusion_loss_s[e]
    latency    = max_v finish(v)

The priority is HEFT's upward rank (Topcuoglu et al. 2002): the length of the longest path to the
graph's end at mean costs. It depends on the problem and not on the placement, so one order of all
operations serves every placement, and the recursion is one `scan` over it. A device never runs a
ready operation before one of higher priority that still waits. Links do not queue: a tensor is
under way for its delay, however many are.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from placement.graphs import dag
from placement.simulators import schedule
from placement.simulators.tensors import edge_transfer_s
from placement.types import Array, CostModel, OpGraph


class Tables(NamedTuple):
    """What `latency` reads; S steps of `schedule`."""

    steps: schedule.Steps
    compute_s: Array  # float32 [S, D]: of the step's operation
    delay_s: Array  # float32 [S, WIDTH, D, D]: of the step's inputs


def tables(graph: OpGraph, costs: CostModel) -> Tables:
    """The tables of a problem, on the host."""
    steps = schedule.steps(graph, priority_order(graph, costs))
    delay_s = edge_delay_s(graph, costs)
    none = np.zeros((1, *delay_s.shape[1:]), np.float32)
    return Tables(
        steps,
        np.asarray(costs.compute_s, np.float32)[steps.op],
        np.concatenate([delay_s, none])[steps.edges],
    )


def edge_delay_s(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """float32 [E, D, D]: from the end of an edge's sender to the arrival at its receiver."""
    delay_s = edge_transfer_s(graph, costs)
    apart = ~np.eye(delay_s.shape[-1], dtype=bool)
    return delay_s + np.where(apart, np.asarray(costs.fusion_loss_s, np.float32)[:, None, None], 0)


def mean_delay_s(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """float64 [E]: an edge's delay, the mean of the pairs of devices that are linked."""
    delay_s = edge_delay_s(graph, costs).astype(np.float64)
    apart = ~np.eye(delay_s.shape[-1], dtype=bool)
    return finite_mean(delay_s[:, apart])


def finite_mean(values: np.ndarray) -> np.ndarray:
    """Mean [N] of the finite ones among [N, M]; zero where there is none."""
    finite = np.isfinite(values)
    return np.where(finite, values, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)


def upward_rank(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """float64 [N]: the longest path from each operation to the end, at means of finite costs."""
    compute_s = finite_mean(np.asarray(costs.compute_s, np.float64))
    delay_s = mean_delay_s(graph, costs).tolist()
    starts, edges = dag.successors(graph.num_ops, graph.senders, np.arange(graph.num_edges))
    start_list, edge_list = starts.tolist(), edges.tolist()
    receivers, rank = graph.receivers.tolist(), compute_s.tolist()
    for op in dag.topological_order(graph)[::-1].tolist():
        after = (
            delay_s[e] + rank[receivers[e]] for e in edge_list[start_list[op] : start_list[op + 1]]
        )
        rank[op] += max(after, default=0.0)
    return np.array(rank)


def priority_order(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """int32 [N]: operations by decreasing upward rank, topological where ranks are equal."""
    topological = dag.topological_order(graph)
    rank = upward_rank(graph, costs)[topological]
    return topological[np.argsort(-rank, kind="stable")]


def optimistic_cost_s(graph: OpGraph, costs: CostModel, allowed: np.ndarray) -> np.ndarray:
    """PEFT's table (Arabnejad and Barbosa 2014, equation 5), float64 [N, D].

    The least time from the end of an operation on a device to the end of the graph, if every
    descendant had its best device to itself; inf where `allowed`, bool [N, D], is false.
    """
    compute_s = np.where(allowed, np.asarray(costs.compute_s, np.float64), np.inf)
    mean_s = mean_delay_s(graph, costs)
    table = np.where(allowed, 0.0, np.inf)
    starts, edges = dag.successors(graph.num_ops, graph.senders, np.arange(graph.num_edges))
    for op in dag.topological_order(graph)[::-1].tolist():
        leaving = edges[starts[op] : starts[op + 1]]
        if len(leaving):
            onward = table[graph.receivers[leaving]] + compute_s[graph.receivers[leaving]]
            elsewhere = onward.min(axis=1) + mean_s[leaving]
            table[op] = np.maximum(table[op], np.minimum(onward, elsewhere[:, None]).max(axis=0))
    return table


def latency(t: Tables, placement: Array) -> Array:
    """Seconds of placements int32 [N, B] -> float32 [B]."""
    num_devices, batch = t.compute_s.shape[1], placement.shape[1]
    placement = jnp.concatenate([placement, jnp.zeros((2, batch), placement.dtype)])

    def step(carry: Any, x: tuple[schedule.Steps, Array, Array]) -> tuple[Any, None]:
        finish, free, arrival = carry
        s, compute_s, delay_s = x
        device = placement[s.op]
        arrival = jnp.where(s.first, 0.0, arrival)
        for slot in range(schedule.WIDTH):
            there = placement[s.inputs[slot]]
            delay = _between(delay_s[slot], there, device)
            arrival = jnp.maximum(arrival, finish[s.inputs[slot]] + delay)
        start = jnp.maximum(arrival, _chosen(free, device))
        end = start + _chosen(jnp.broadcast_to(compute_s[:, None], free.shape), device)
        own = (device == jnp.arange(num_devices)[:, None]) & s.last
        finish = jax.lax.dynamic_update_index_in_dim(finish, end, s.output, 0)  # `at` is slower
        return (finish, jnp.where(own, end, free), arrival), None

    finish = jnp.zeros(placement.shape, jnp.float32)
    start = finish, jnp.zeros((num_devices, batch)), jnp.zeros(batch)
    (_, free, _), _ = jax.lax.scan(step, start, (t.steps, t.compute_s, t.delay_s))
    return free.max(axis=0)


def _chosen(rows: Array, device: Array) -> Array:
    """`rows[device[b], b]`, float32 [B], of rows float32 [D, B]."""
    value = rows[0]
    for d in range(1, rows.shape[0]):
        value = jnp.where(device == d, rows[d], value)
    return value


def _between(delay_s: Array, source: Array, device: Array) -> Array:
    """`delay_s[source[b], device[b]]`, float32 [B], of delays float32 [D, D], zero if equal."""
    value = jnp.zeros(source.shape)
    for s in range(delay_s.shape[0]):
        for d in range(delay_s.shape[0]):
            if s != d:
                value = jnp.where((source == s) & (device == d), delay_s[s, d], value)
    return value
