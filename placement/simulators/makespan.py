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

from placement.simulators import schedule, tensors
from placement.types import Array, OpGraph


class Boundary(NamedTuple):
    """What stands before and after a part of a schedule, of each step's operation on each device.

    With it the latency is that of the whole schedule, as far as it goes through the part:
    max_v ( finish(v) + onward_s[v, p[v]] ).
    """

    ready_s: Array  # float32 [S, D]: when the device is free and inputs from before have arrived
    onward_s: Array  # float32 [S, D]: from its end to that of all that follows the part


class Links(NamedTuple):
    """What transfers cost between M kinds of devices."""

    # int8 [D]: of every device; those of a kind, such as equal GPUs, have equal links
    kind: np.ndarray
    delay_s: np.ndarray  # float32 [E, M, M]: within a kind: between two of its devices


class Tables(NamedTuple):
    """What `latency` reads; S steps of `schedule`, M kinds of devices."""

    steps: schedule.Steps
    compute_s: Array  # float32 [S, D]: of the step's operation
    kind: Array  # int8 [D], as in `Links`
    delay_s: Array  # float32 [S, WIDTH, M, M]: of the step's inputs
    boundary: Boundary | None = None  # None where the part is all

    @property
    def by_step(self) -> tuple[schedule.Steps, Array, Array]:
        """What each step reads, its boundary aside."""
        return self.steps, self.compute_s, self.delay_s


def tables(graph: OpGraph, compute_s: Array, order: np.ndarray, links: Links) -> Tables:
    """Makes the tables of a problem, on the host.

    Args:
      graph: N operations, E edges.
      compute_s: float [N, D], see `CostModel`.
      order: int32 [N], of priority (`ranks.priority_order`).
      links: of the edges' delays.
    """
    steps = schedule.steps(graph.num_ops, graph.senders, graph.receivers, order)
    return Tables(
        steps,
        np.asarray(compute_s, np.float32)[steps.op],
        links.kind,
        of_inputs(steps, links.delay_s),
    )


def make_links(delay_s: np.ndarray) -> Links:
    """Finds the kinds of devices, of delays float32 [E, D, D]."""

    def is_symmetric(swap: np.ndarray) -> bool:
        return bool((delay_s[:, swap][:, :, swap] == delay_s).all())

    equally_linked = tensors.interchangeable(delay_s.shape[-1], is_symmetric)
    first, kind = np.unique(equally_linked, return_inverse=True)
    # Within a kind: between any two of its devices, zero where it has one.
    other = np.array([np.flatnonzero(kind == k)[-1] for k in range(len(first))])
    of_kinds_s = delay_s[:, first][:, :, first]
    each = np.arange(len(first))
    of_kinds_s[:, each, each] = delay_s[:, first, other]
    return Links(kind.astype(np.int8), of_kinds_s)


def of_inputs(steps: schedule.Steps, delay_s: np.ndarray) -> np.ndarray:
    """Returns of delays [E, M, M] those of each step's inputs, [S, WIDTH, M, M]."""
    none = np.zeros((1, *delay_s.shape[1:]), np.float32)
    return np.concatenate([delay_s, none])[steps.edges]


def latency(t: Tables, placement: Array) -> Array:
    """Computes seconds of placements int32 [N, B] -> float32 [B]."""
    _, free, latest, _ = _run(t, placement)
    return free.max(axis=0) if latest is None else latest


def finish_s(t: Tables, placement: Array) -> Array:
    """Computes when each operation ends under placements int32 [N, B] -> float32 [N, B]."""
    return _run(t, placement)[0][: placement.shape[0]]


def times_s(t: Tables, placement: Array) -> tuple[Array, Array]:
    """When each operation starts and ends under placements int32 [N, B] -> float32 [N, B] each.

    Where one follows another at once on its device, start and end are the same number.
    """
    finish, _, _, start = _run(t, placement, with_starts=True)
    return start[: placement.shape[0]], finish[: placement.shape[0]]


def _run(
    t: Tables, placement: Array, *, with_starts: bool = False
) -> tuple[Array, Array, Array | None, Any]:
    """When operations end [N + 2, B], devices [D, B], all [B] where a boundary follows, and start.

    The last is [N + 2, B] too where it is asked for.
    """
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

    def step(carry: Any, x: Any) -> tuple[Any, None]:
        finish, free, arrival, latest, starts = carry
        (s, compute_s, delay_s), boundary = x
        device = placement[s.op]
        ready = 0.0 if boundary is None else _chosen(boundary.ready_s, device)
        arrival = jnp.where(s.first, ready, arrival)
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
        if with_starts:
            starts = jax.lax.dynamic_update_index_in_dim(starts, start, s.output, 0)
        if boundary is not None:
            latest = jnp.maximum(latest, end + _chosen(boundary.onward_s, device))
        return (finish, jnp.where(own, end, free), arrival, latest, starts), None

    # Before the first operation of a part nothing binds but its boundary.
    earliest = 0.0 if t.boundary is None else -jnp.inf
    finish = jnp.full(placement.shape, earliest)
    latest = None if t.boundary is None else jnp.full(batch, -jnp.inf)
    starts = jnp.zeros_like(finish) if with_starts else None
    begin = finish, jnp.full((num_devices, batch), earliest), jnp.zeros(batch), latest, starts
    (finish, free, _, latest, starts), _ = jax.lax.scan(step, begin, (t.by_step, t.boundary))
    return finish, free, latest, starts


def _chosen(rows: Array, number: Array) -> Array:
    """`rows[number[b], b]`, [B], of `rows` [K, B] or [K]. Selects, not a gather: they vectorise."""
    value = rows[0]
    for k in range(1, rows.shape[0]):
        value = jnp.where(number == k, rows[k], value)
    return jnp.broadcast_to(value, number.shape)
