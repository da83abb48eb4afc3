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

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.simulators import ranks, schedule, tensors
from placement.types import Array, CostModel, OpGraph


class Tables(NamedTuple):
    """What `latency` reads; S steps of `schedule`."""

    steps: schedule.Steps
    compute_s: Array  # float32 [S, D]: of the step's operation
    delay_s: Array  # float32 [S, WIDTH, D, D]: of the step's inputs


def tables(graph: OpGraph, costs: CostModel) -> Tables:
    """Makes the tables of a problem, on the host."""
    steps = schedule.steps(graph, ranks.priority_order(graph, costs))
    delay_s = tensors.edge_delay_s(graph, costs)
    none = np.zeros((1, *delay_s.shape[1:]), np.float32)
    return Tables(
        steps,
        np.asarray(costs.compute_s, np.float32)[steps.op],
        np.concatenate([delay_s, none])[steps.edges],
    )


def latency(t: Tables, placement: Array) -> Array:
    """Computes seconds of placements int32 [N, B] -> float32 [B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
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
