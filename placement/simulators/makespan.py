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
    """What `latency` reads; S steps of `schedule`, M kinds of devices."""

    steps: schedule.Steps
    compute_s: Array  # float32 [S, D]: of the step's operation
    kind: Array  # int8 [D]: of every device; those of a kind, such as equal GPUs, have equal links
    delay_s: Array  # float32 [S, WIDTH, M, M]: of the step's inputs, between devices of two kinds

    @property
    def by_step(self) -> tuple[schedule.Steps, Array, Array]:
        """What each step reads."""
        return self.steps, self.compute_s, self.delay_s


def tables(graph: OpGraph, costs: CostModel) -> Tables:
    """Makes the tables of a problem, on the host."""
    steps = schedule.steps(graph, ranks.priority_order(graph, costs))
    delay_s = tensors.edge_delay_s(graph, costs)
    first, kind = np.unique(_equally_linked(delay_s), return_inverse=True)
    # Within a kind: between any two of its devices, zero where it has one.
    other = np.array([np.flatnonzero(kind == k)[-1] for k in range(len(first))])
    of_kinds_s = delay_s[:, first][:, :, first]
    each = np.arange(len(first))
    of_kinds_s[:, each, each] = delay_s[:, first, other]
    none = np.zeros((1, *of_kinds_s.shape[1:]), np.float32)
    return Tables(
        steps,
        np.asarray(costs.compute_s, np.float32)[steps.op],
        kind.astype(np.int8),
        np.concatenate([of_kinds_s, none])[steps.edges],
    )


def _equally_linked(delay_s: np.ndarray) -> np.ndarray:
    """The first device, int [D], with which each can change places in delays [E, D, D]."""
    num_devices = delay_s.shape[-1]
    first = np.arange(num_devices)
    for d in range(num_devices):
        for r in np.flatnonzero(first[:d] == np.arange(d)):
            swapped = np.arange(num_devices)
            swapped[d], swapped[r] = r, d
            if (delay_s[:, swapped][:, :, swapped] == delay_s).all():
                first[d] = r
                break
    return first


def latency(t: Tables, placement: Array) -> Array:
    """Computes seconds of placements int32 [N, B] -> float32 [B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    num_devices, num_kinds = t.compute_s.shape[1], t.delay_s.shape[-1]
    batch = placement.shape[1]
    # As narrow as can be: more of them fit into a vector.
    narrow = jnp.int8 if num_kinds**2 <= 2**7 else jnp.int16
    placement = jnp.concatenate([placement, jnp.zeros((2, batch), placement.dtype)]).astype(narrow)
    kinds = placement
    if num_kinds < num_devices:
        kinds = jnp.asarray(_chosen(jnp.asarray(t.kind, narrow)[:, None, None], placement))

    def step(carry: Any, x: tuple[schedule.Steps, Array, Array]) -> tuple[Any, None]:
        finish, free, arrival = carry
        s, compute_s, delay_s = x
        device = placement[s.op]
        arrival = jnp.where(s.first, 0.0, arrival)
        for slot in range(schedule.WIDTH):
            there = s.inputs[slot]
            delay = _chosen(delay_s[slot].ravel(), kinds[there] * num_kinds + kinds[s.op])
            if num_kinds < num_devices:
                delay = jnp.where(placement[there] == device, 0.0, delay)
            arrival = jnp.maximum(arrival, finish[there] + delay)
        start = jnp.maximum(arrival, _chosen(free, device))
        end = start + _chosen(jnp.broadcast_to(compute_s[:, None], free.shape), device)
        own = (device == jnp.arange(num_devices, dtype=narrow)[:, None]) & s.last
        finish = jax.lax.dynamic_update_index_in_dim(finish, end, s.output, 0)  # `at` is slower
        return (finish, jnp.where(own, end, free), arrival), None

    finish = jnp.zeros(placement.shape, jnp.float32)
    start = finish, jnp.zeros((num_devices, batch)), jnp.zeros(batch)
    (_, free, _), _ = jax.lax.scan(step, start, t.by_step)
    return free.max(axis=0)


def _chosen(rows: Array, number: Array) -> Array:
    """`rows[number[b], b]`, [B], of `rows` [K, B] or [K]. Selects, not a gather: they vectorise."""
    value = rows[0]
    for k in range(1, rows.shape[0]):
        value = jnp.where(number == k, rows[k], value)
    return jnp.broadcast_to(value, number.shape)
