"""Moves of groups of operations to devices, and what is known of one before it is simulated."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph

from placement.policies.cost_features import CostView
from placement.simulators.makespan import Timing
from placement.types import Array

GROUP_FEATURES, MOVE_FEATURES = 10, 12
_BINS = 64  # of time
_SCALE = 100.0  # of shares of the latency: a percent is of order 1


class Placed(NamedTuple):
    """A placement and what it takes; times in units are over the median operation's."""

    before: Array  # int32 [N]
    times: Timing  # its schedule
    delay: Array  # float32 [E]: of an edge between two devices in the mean, in units
    now: Array  # float32 [E]: what an edge takes now, in units
    load: Array  # float32 [D]: share of the latency that a device computes


class Groups(NamedTuple):
    """K groups."""

    member: Array  # bool [K, N]: what of a group moves
    able: Array  # bool [K, D]: whether moving there does anything that none before it does


def placed(graph: jraph.GraphsTuple, before: Array, times: Timing, unit_s: Array) -> Placed:
    """Gathers what a placement int32 [N] takes; the graph's globals are a `CostView`."""
    delay_s = jnp.asarray(graph.globals.delay_s)
    u, v, num_devices = graph.senders, graph.receivers, delay_s.shape[-1]
    mean = delay_s.sum(axis=(1, 2)) / max(1, num_devices * (num_devices - 1)) / unit_s
    now = delay_s[jnp.arange(len(delay_s)), before[u], before[v]] / unit_s
    lasts_s = times.finish_s - times.start_s
    load = lasts_s @ jax.nn.one_hot(before, num_devices) / _latency_s(times)
    return Placed(before, times, mean, now, load)


def groups(graph: jraph.GraphsTuple, before: Array, member: Array) -> Groups:
    """Tells which groups bool [K, N] can move where; nothing moves to where it is."""
    allowed = jnp.asarray(graph.nodes["allowed"])
    elsewhere = allowed & (before[:, None] != jnp.arange(allowed.shape[1]))
    # Moves are told apart by sums of pseudorandom numbers (Knuth's multiplicative hash, squared).
    number = jnp.arange(1, len(before) + 1, dtype=jnp.uint32) * jnp.uint32(2654435761)
    number = (number ^ (number >> 15)) ** 2
    total = member.astype(jnp.uint32) @ jnp.where(elsewhere, number[:, None], 0)
    earlier = jnp.tri(len(member), k=-1, dtype=bool)[..., None]
    again = (earlier & (total[:, None] == total)).any(axis=1)
    moves = member.astype(jnp.float32) @ elsewhere.astype(jnp.float32) > 0
    return Groups(member, moves & ~again)


def features(graph: jraph.GraphsTuple, of: Placed, groups: Groups) -> tuple[Array, Array]:
    """Describes groups, float32 [K, GROUP_FEATURES], and moves, float32 [K, D, MOVE_FEATURES].

    Of a group: its size, time, place in the schedule, slack and traffic. Of a move: the time on the
    device and what that is more than at best and than now, the traffic with the device and how much
    less or more of it crosses, what is there already, and how busy the device is, on the whole and
    while the group runs now.
    """
    costs: CostView[Any] = graph.globals
    compute_s, unit_s = jnp.asarray(costs.compute_s), costs.own.unit_s
    times, latency_s = of.times, _latency_s(of.times)
    share = unit_s / latency_s
    num_devices = compute_s.shape[1]
    onto = jax.nn.one_hot(of.before, num_devices)
    member = groups.member
    group = member.astype(jnp.float32)
    count = jnp.maximum(group.sum(axis=1, keepdims=True), 1.0)
    lasts_s = times.finish_s - times.start_s
    lasts = group @ lasts_s[:, None] / unit_s
    here = group @ onto / count
    crossing, leaving, traffic = _traffic(graph, of, group, onto)

    def share_of(per_op: Array, reduced: Any, none: Array) -> Array:
        return reduced(jnp.where(member, per_op, none), axis=1, keepdims=True) / latency_s

    first = share_of(times.start_s, jnp.min, latency_s)
    last = share_of(times.finish_s, jnp.max, jnp.zeros(()))
    critical_s = jnp.where(times.slack_s <= 1e-6 * latency_s, lasts_s, 0.0)
    of_group = [
        *(jnp.log1p(count), jnp.log1p(lasts), first, last),
        share_of(times.slack_s, jnp.min, latency_s),
        group @ times.slack_s[:, None] / latency_s / count,
        group @ critical_s[:, None] / (lasts * unit_s + 1e-12),
        *(here @ of.load[:, None], jnp.log1p(crossing), jnp.log1p(leaving)),
    ]
    compute = group @ compute_s / unit_s
    least = compute.min(axis=1, keepdims=True)
    more, crosses = compute - lasts, leaving - traffic - crossing
    window = jnp.maximum(last - first, 1.0 / _BINS)
    busy = _busy(of, onto, first, last) - here * lasts * share  # by others, roughly
    takes = compute * share
    of_move = [
        *(jnp.log1p(compute), (compute - least) / (compute + least + 1e-6)),
        *(_signed_log(more), _signed_log(more * share * _SCALE)),
        *(traffic / (leaving + 1e-6), jnp.log1p(traffic)),
        *(_signed_log(crosses), _signed_log(crosses * share * _SCALE)),
        *(here, jnp.broadcast_to(of.load, here.shape), busy / window),
        (busy + takes - window) / (window + takes + 1e-6),
    ]
    return jnp.concatenate(of_group, axis=1), jnp.stack(of_move, axis=-1)


def _traffic(
    graph: jraph.GraphsTuple, of: Placed, group: Array, onto: Array
) -> tuple[Array, Array, Array]:
    """Of groups [K, N], in units: what crosses now, [K, 1]; what leaves, [K, 1]; with devices."""
    u, v = jnp.asarray(graph.senders), jnp.asarray(graph.receivers)
    inside = group.T  # rows are gathered faster than columns
    inside_u, inside_v = inside[u], inside[v]
    traffic = (inside_u * (1 - inside_v)).T @ (of.delay[:, None] * onto[v])
    traffic += (inside_v * (1 - inside_u)).T @ (of.delay[:, None] * onto[u])
    crossing = jnp.maximum(inside_u, inside_v).T @ of.now[:, None]
    return crossing, traffic.sum(axis=1, keepdims=True), traffic


def _busy(of: Placed, onto: Array, first: Array, last: Array) -> Array:
    """Shares of the latency, [K, D], that devices compute between two times [K, 1]."""
    latency_s = _latency_s(of.times)
    lasts = (of.times.finish_s - of.times.start_s) / latency_s
    middle = 0.5 * (of.times.start_s + of.times.finish_s) / latency_s
    at = jnp.clip(middle * _BINS, 0, _BINS - 1).astype(jnp.int32)
    each = jnp.zeros((_BINS, onto.shape[1])).at[at].add(lasts[:, None] * onto)
    by_then = jnp.pad(jnp.cumsum(each, axis=0), ((1, 0), (0, 0)))
    begin, end = (jnp.clip(x[:, 0] * _BINS, 0, _BINS).astype(jnp.int32) for x in (first, last))
    return by_then[end] - by_then[begin]


def _latency_s(times: Timing) -> Array:
    return jnp.maximum(times.latency_s, jnp.finfo(jnp.float32).tiny)


def _signed_log(x: Array) -> Array:
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))
