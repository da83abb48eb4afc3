"""Moves of groups of operations to devices, and their features before they are simulated.

A move puts the members of one group on one device, as far as the device can run them, and leaves
all other operations where they are. There are K groups and D devices, so K D moves. Times are in
units of the median operation's time, or shares of the latency of the current schedule.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph

from placement.policies.inputs import CostView
from placement.simulators.makespan import OpSchedule
from placement.types import Array

GROUP_FEATURES, MOVE_FEATURES = 10, 12
_NUM_BINS = 64  # intervals of the latency in which the devices' loads are summed
_PERCENT = 100.0  # shares of the latency that are small on the scale of 1


class ScheduledPlacement(NamedTuple):
    """The current placement, its schedule and its transfers."""

    placement: Array  # int32 [N]
    schedule: OpSchedule
    mean_delay: Array  # float32 [E]: of an edge, over all pairs of different devices, in units
    current_delay: Array  # float32 [E]: of an edge in this placement, in units
    load: Array  # float32 [D]: the share of the latency during which a device computes


def describe_placement(
    graph: jraph.GraphsTuple, placement: Array, schedule: OpSchedule, unit_s: Array
) -> ScheduledPlacement:
    """Computes the delays and loads of a placement int32 [N]; the globals are a `CostView`."""
    delay_s = jnp.asarray(graph.globals.delay_s)  # [E, D, D]
    u, v, num_devices = graph.senders, graph.receivers, delay_s.shape[-1]
    num_pairs = max(1, num_devices * (num_devices - 1))
    mean_delay = delay_s.sum(axis=(1, 2)) / num_pairs / unit_s
    current_delay = delay_s[jnp.arange(len(delay_s)), placement[u], placement[v]] / unit_s
    duration_s = schedule.finish_s - schedule.start_s
    load = duration_s @ jax.nn.one_hot(placement, num_devices) / _latency_s(schedule)
    return ScheduledPlacement(placement, schedule, mean_delay, current_delay, load)


def find_valid_moves(graph: jraph.GraphsTuple, placement: Array, members: Array) -> Array:
    """Finds the moves of groups bool [K, N] that differ from all moves of earlier groups.

    Returns:
      bool [K, D]: whether the move changes the placement, and no group before has the same move.
    """
    allowed = jnp.asarray(graph.nodes["allowed"])
    can_move = allowed & (placement[:, None] != jnp.arange(allowed.shape[1]))  # [N, D]
    # Moves are compared by a hash of the operations that they move: the sum of pseudorandom numbers
    # of these (Knuth's multiplicative hash, squared), modulo 2^32.
    number = jnp.arange(1, len(placement) + 1, dtype=jnp.uint32) * jnp.uint32(2654435761)
    number = (number ^ (number >> 15)) ** 2
    move_hash = members.astype(jnp.uint32) @ jnp.where(can_move, number[:, None], 0)  # [K, D]
    is_earlier = jnp.tri(len(members), k=-1, dtype=bool)[..., None]
    is_duplicate = (is_earlier & (move_hash[:, None] == move_hash)).any(axis=1)
    changes = members.astype(jnp.float32) @ can_move.astype(jnp.float32) > 0
    return changes & ~is_duplicate


def move_features(
    graph: jraph.GraphsTuple, state: ScheduledPlacement, members: Array
) -> tuple[Array, Array]:
    """Computes the features of groups and of their moves.

    Args:
      graph: its globals are a `CostView`, whose policy's tables have a `unit_s`.
      state: the current placement.
      members: bool [K, N], the groups.

    Returns:
      Features of groups, float32 [K, GROUP_FEATURES]: size, time, place in the schedule, slack,
      transfers. Features of moves, float32 [K, D, MOVE_FEATURES]: the group's time on the device,
      absolute and relative to the best and the current time; the traffic with operations on the
      device, and the change of all crossing traffic; the share of the group that is there already;
      the load of the device in total and while the group runs.
    """
    costs: CostView[Any] = graph.globals
    compute_s, unit_s = jnp.asarray(costs.compute_s), costs.policy_tables.unit_s
    schedule, latency_s = state.schedule, _latency_s(state.schedule)
    unit_share = unit_s / latency_s
    num_devices = compute_s.shape[1]
    op_device = jax.nn.one_hot(state.placement, num_devices)  # [N, D]
    group = members.astype(jnp.float32)  # [K, N]
    count = jnp.maximum(group.sum(axis=1, keepdims=True), 1.0)  # [K, 1], as all below
    duration_s = schedule.finish_s - schedule.start_s  # [N]
    duration = group @ duration_s[:, None] / unit_s
    share_there = group @ op_device / count  # [K, D]

    # In units, [K, 1]: current delays of all edges of members, and mean delays of the edges that
    # leave the group; [K, D]: the latter by the device at their other end.
    u, v = jnp.asarray(graph.senders), jnp.asarray(graph.receivers)
    inside = group.T  # [N, K]: rows are gathered faster than columns
    inside_u, inside_v = inside[u], inside[v]
    traffic = (inside_u * (1 - inside_v)).T @ (state.mean_delay[:, None] * op_device[v])
    traffic += (inside_v * (1 - inside_u)).T @ (state.mean_delay[:, None] * op_device[u])
    crossing = jnp.maximum(inside_u, inside_v).T @ state.current_delay[:, None]
    outgoing = traffic.sum(axis=1, keepdims=True)

    def latency_share(per_op_s: Array, reduce: Any, empty_s: Array) -> Array:
        """Reduces times [N] over the members of each group, in shares of the latency."""
        return reduce(jnp.where(members, per_op_s, empty_s), axis=1, keepdims=True) / latency_s

    first_start = latency_share(schedule.start_s, jnp.min, latency_s)
    last_finish = latency_share(schedule.finish_s, jnp.max, jnp.zeros(()))
    critical_s = jnp.where(schedule.slack_s <= 1e-6 * latency_s, duration_s, 0.0)
    group_columns = [
        jnp.log1p(count),
        jnp.log1p(duration),
        first_start,
        last_finish,
        latency_share(schedule.slack_s, jnp.min, latency_s),
        group @ schedule.slack_s[:, None] / latency_s / count,
        group @ critical_s[:, None] / (duration * unit_s + 1e-12),
        share_there @ state.load[:, None],
        jnp.log1p(crossing),
        jnp.log1p(outgoing),
    ]
    compute = group @ compute_s / unit_s  # [K, D]
    min_compute = compute.min(axis=1, keepdims=True)
    extra_compute = compute - duration
    # After the move only the traffic with the device does not cross.
    extra_crossing = outgoing - traffic - crossing

    # Load by other operations between the group's first start and last finish: what the device
    # computes then, less the group's part of it. Roughly, as the window may cut an operation: each
    # counts in the bin of its middle.
    window = jnp.maximum(last_finish - first_start, 1.0 / _NUM_BINS)
    middle = 0.5 * (schedule.start_s + schedule.finish_s) / latency_s
    op_bin = jnp.clip(middle * _NUM_BINS, 0, _NUM_BINS - 1).astype(jnp.int32)
    op_load = (duration_s / latency_s)[:, None] * op_device
    bins = jnp.zeros((_NUM_BINS, num_devices)).at[op_bin].add(op_load)
    cumulative = jnp.pad(jnp.cumsum(bins, axis=0), ((1, 0), (0, 0)))  # before each bin
    begin, end = (
        jnp.clip(time[:, 0] * _NUM_BINS, 0, _NUM_BINS).astype(jnp.int32)
        for time in (first_start, last_finish)
    )
    busy = cumulative[end] - cumulative[begin] - share_there * duration * unit_share
    compute_share = compute * unit_share
    move_columns = [
        jnp.log1p(compute),
        (compute - min_compute) / (compute + min_compute + 1e-6),
        _signed_log(extra_compute),
        _signed_log(extra_compute * unit_share * _PERCENT),
        traffic / (outgoing + 1e-6),
        jnp.log1p(traffic),
        _signed_log(extra_crossing),
        _signed_log(extra_crossing * unit_share * _PERCENT),
        share_there,
        jnp.broadcast_to(state.load, share_there.shape),
        busy / window,
        (busy + compute_share - window) / (window + compute_share + 1e-6),
    ]
    return jnp.concatenate(group_columns, axis=1), jnp.stack(move_columns, axis=-1)


def _latency_s(schedule: OpSchedule) -> Array:
    """Returns the latency that times are shares of: 1 s for a schedule that takes no time."""
    return jnp.where(schedule.latency_s > 0, schedule.latency_s, 1.0)


def _signed_log(x: Array) -> Array:
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))
