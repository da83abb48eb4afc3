"""Lower bounds of the `makespan` objective that hold for every placement.

Assume that some placement has a latency of at most T. On device d an operation v then starts no
earlier than its head and ends no later than T minus its tail,

    head(v, d) = max over edges u -> v of min over devices a of
                     head(u, a) + compute_s[u, a] + delay(u, v, a, d)
    tail(u, a) = max over edges u -> v of min over devices d of
                     delay(u, v, a, d) + compute_s[v, d] + tail(v, d).

So d is *open* to v only if head(v, d) + compute_s[v, d] + tail(v, d) <= T. It is open to a decision
only if it is open to all its operations. Heads and tails are computed again over the
open devices alone until nothing changes. A decision without an open device refutes T.

The open devices are then checked for load by a linear program (`_is_overloaded`). The bound is the
largest T that was refuted (a destructive bound; Klein and Scholl 1999). It does not use the
priority order, so it bounds all schedules and not only the simulator's.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, sparse

from placement.graphs import dag
from placement.problem import Problem, find_equal_devices
from placement.solvers.limits import SearchLimits
from placement.types import Array

_PRECISION = 1e-3  # relative, to which the largest T is found
_TOLERANCE = 1e-6  # of the linear program, in units of T
_QUANTILES = 6  # of each device, where intervals begin and where they end
_MAX_PASSES = 4  # of closing devices; the bound is valid after each of them
_MAX_LOOPED_EDGES = 20_000  # with more, compiling the recursion takes less than Python's loop
_MAX_SOLVED_DECISIONS = 16_000  # with more, the linear program is solved for a sample
_SAMPLE_DECISIONS = 4_000  # the largest size of the sample


class Windows(NamedTuple):
    """The windows in which N operations run on D devices, given T; inf where a device is closed."""

    head_s: np.ndarray  # float64 [N, D]
    compute_s: np.ndarray  # float64 [N, D]
    tail_s: np.ndarray  # float64 [N, D]

    def compute_through_s(self) -> np.ndarray:
        """Returns float64 [N, D]: the least latency with the operation on the device."""
        return self.head_s + self.compute_s + self.tail_s


class Edges(NamedTuple):
    """The E edges, sorted by their receivers' topological order."""

    senders: list[int]
    receivers: list[int]
    delay_s: np.ndarray  # float64 [E, D, D]


def bound_makespan(problem: Problem, limits: SearchLimits) -> float:
    """Bounds the latency of every placement from below, in seconds; inf if none is feasible.

    At the time limit it is the largest T refuted so far, and no less than the longest path.
    """
    edges, compute_s = collect_edges(problem), np.asarray(problem.costs.compute_s, np.float64)
    unlimited = compute_windows(edges, problem.allowed_compute_s)
    path_s = float(unlimited.compute_through_s().min(axis=1).max())

    def is_refuted(latency_s: float) -> bool:
        windows = close_windows(problem.decision, edges, unlimited, latency_s)
        has_closed_op = np.isinf(windows.compute_s).all(axis=1).any()
        return bool(has_closed_op) or _is_overloaded(problem, windows, latency_s)

    low_s, high_s = path_s, compute_longest_s(edges, compute_s)
    if high_s == 0:  # nothing takes any time: the interval is empty
        return 0.0
    if not np.isfinite(low_s) or is_refuted(high_s):
        return np.inf
    low_s = max(low_s, _TOLERANCE * high_s)  # a lower bound would not be worth the search
    if low_s >= high_s or not is_refuted(low_s):
        return path_s
    while high_s > low_s * (1 + _PRECISION) and not limits.is_over():
        middle_s = np.sqrt(low_s * high_s)
        low_s, high_s = (middle_s, high_s) if is_refuted(middle_s) else (low_s, middle_s)
    return float(low_s)


def collect_edges(problem: Problem) -> Edges:
    """Returns the pairs of operations that edges join, each once with its longest delay."""
    senders, receivers, delay_s, _ = problem.dependencies
    order = dag.sort_edges(problem.topological_order, receivers)
    seconds = delay_s[order].astype(np.float64)
    return Edges(senders[order].tolist(), receivers[order].tolist(), seconds)


def compute_windows(edges: Edges, compute_s: np.ndarray) -> Windows:
    """Computes the windows of operations.

    Args:
      edges: of N operations.
      compute_s: float64 [N, D], inf where a device is closed.
    """
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    reversed_edges = Edges(
        edges.receivers[::-1], edges.senders[::-1], edges.delay_s[::-1].transpose(0, 2, 1)
    )

    def compute_heads_s(edges: Edges) -> np.ndarray:
        if len(edges.senders) > _MAX_LOOPED_EDGES:
            with jax.enable_x64(True):  # in float32 long paths lose digits, and the bound its proof
                ends = (np.asarray(end, np.int32) for end in (edges.senders, edges.receivers))
                return np.asarray(_scan_heads_s(*ends, edges.delay_s, compute_s))
        head_s = np.zeros_like(compute_s)
        for sender, receiver, delay_s in zip(*edges, strict=True):
            end_s = head_s[sender] + compute_s[sender]
            arrival_s = (end_s[:, None] + delay_s).min(axis=0)
            head_s[receiver] = np.maximum(head_s[receiver], arrival_s)
        return head_s

    return Windows(compute_heads_s(edges), compute_s, compute_heads_s(reversed_edges))


@jax.jit
def _scan_heads_s(senders: Array, receivers: Array, delay_s: Array, compute_s: Array) -> Array:
    def step(head_s: jax.Array, edge: tuple[Array, Array, Array]) -> tuple[jax.Array, None]:
        sender, receiver, edge_delay_s = edge
        end_s = head_s[sender] + compute_s[sender]
        arrival_s = jnp.maximum(head_s[receiver], (end_s[:, None] + edge_delay_s).min(axis=0))
        return jax.lax.dynamic_update_index_in_dim(head_s, arrival_s, receiver, 0), None

    return jax.lax.scan(step, jnp.zeros_like(compute_s), (senders, receivers, delay_s))[0]


def compute_longest_s(edges: Edges, compute_s: np.ndarray) -> float:
    """Sums all operations [N, D] and delays at their slowest: no finite latency is longer."""
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    compute_s, delay_s = (np.where(np.isfinite(s), s, 0.0) for s in (compute_s, edges.delay_s))
    return float(compute_s.max(axis=1).sum() + delay_s.max(axis=(1, 2)).sum())


def close_windows(
    decision: np.ndarray, edges: Edges, windows: Windows, latency_s: float
) -> Windows:
    """Closes all devices on which a decision makes every placement slower than `latency_s`."""
    for _ in range(_MAX_PASSES):
        is_late = windows.compute_through_s() > latency_s * (1 + _TOLERANCE)
        is_late_decision = np.zeros(is_late.shape, bool)  # the first K rows
        np.logical_or.at(is_late_decision, decision, is_late)
        compute_s = np.where(is_late_decision[decision], np.inf, windows.compute_s)
        if (np.isinf(compute_s) == np.isinf(windows.compute_s)).all():
            break
        windows = compute_windows(edges, compute_s)
    return windows


def _is_overloaded(problem: Problem, windows: Windows, latency_s: float) -> bool:
    """Whether operations overload the open devices (Baptiste et al. 2001, section 3.3).

    Within an interval [a, b] operation v computes on d for at least

        overlap(v, d) = min(compute_s, b - a, head + compute_s - a, b - (T - tail - compute_s)),

    where the last two are those of an operation that runs as early and as late as it can. All
    overlaps have to fit into the b - a seconds of the device. A linear program over the share
    x(v, d) of a decision on each of its open devices,

        (1)  sum over v of overlap(v, d) x(v, d) <= b - a     for some intervals, for all d
        (2)  sum over d of x(v, d) = 1
        (3)  the memory limits,

    refutes T if its least excess is positive. Devices with equal costs, heads and tails are one
    device in it, with the time and memory of all of them together.

    If there are more than some thousand decisions K, the program is solved for every k-th decision,
    counted k times. Its multipliers y >= 0 of lines (1) and (3), sum of y <= 1, then refute T for
    all decisions by weak duality, if

        sum over decisions of min over open d of sum over rows r of d of y[r] load[r, c]
            > sum over rows of y[r] limit[r].
    """
    decision, num_decisions = problem.decision, problem.num_decisions
    first_equal = find_equal_devices(np.concatenate(windows))
    devices, group = np.unique(first_equal, return_inverse=True)
    num_groups = len(devices)
    # The R rows of lines (1) and (3), in units of their limits: the group of equal devices that a
    # row limits, the load float64 [K] of each decision on it, and the limit.
    loads, limits = list[tuple[int, np.ndarray]](), []
    quantiles = np.linspace(0, 1, _QUANTILES)
    for g, device in enumerate(devices.tolist()):
        head_s, compute_s, tail_s = (field[:, device] for field in windows)  # [N]
        is_open = np.isfinite(compute_s)
        if not is_open.any():
            continue
        begins_s = np.unique(np.append(np.quantile(head_s[is_open], quantiles), 0.0))
        ends_s = np.append(latency_s - np.quantile(tail_s[is_open], quantiles), latency_s)
        ends_s = np.unique(ends_s)
        for begin_s in begins_s:
            for end_s in ends_s[ends_s > begin_s]:
                length_s = end_s - begin_s
                earliest_s = (head_s + compute_s)[is_open] - begin_s
                latest_s = end_s - latency_s + (tail_s + compute_s)[is_open]
                overlap_s = np.zeros(head_s.shape)
                longest_s = np.minimum(compute_s[is_open], length_s)
                overlap_s[is_open] = np.minimum(earliest_s, latest_s).clip(0.0, longest_s)
                load_s = np.bincount(decision, overlap_s, num_decisions)
                loads.append((g, load_s / latency_s))
                limits.append(np.sum(group == g) * length_s / latency_s)
    for g, capacity_bytes in enumerate(problem.sum_group_capacity(group)):
        if np.isfinite(capacity_bytes):
            loads.append((g, problem.decisions.memory_bytes / max(capacity_bytes, 1.0)))
            limits.append(capacity_bytes / max(capacity_bytes, 1.0))
    if not loads:  # no operation takes time, and no memory is limited
        return False

    # The program for every k-th decision; its last variable is the excess over the limits.
    is_open = np.ones((num_decisions, num_groups), bool)
    np.logical_and.at(is_open, decision, np.isfinite(windows.compute_s[:, devices]))
    k = -(-num_decisions // _SAMPLE_DECISIONS) if num_decisions > _MAX_SOLVED_DECISIONS else 1
    is_sample_open = is_open[::k]
    rows = [sparse.kron(k * load[None, ::k], np.eye(1, num_groups, g)) for g, load in loads]
    excess = sparse.csr_array(-np.ones((len(rows), 1)))
    sums = sparse.kron(sparse.eye_array(len(is_sample_open)), np.ones((1, num_groups)))
    solution = optimize.linprog(
        np.append(np.zeros(is_sample_open.size), 1.0),
        sparse.hstack([sparse.vstack(rows), excess], format="csr"),
        np.array(limits),
        sparse.hstack([sums, sparse.csr_array((len(is_sample_open), 1))], format="csr"),
        np.ones(len(is_sample_open)),
        bounds=[(0, float(is_allowed)) for is_allowed in is_sample_open.flat] + [(0, None)],
    )
    if solution.status != 0 or k == 1:
        return bool(solution.status == 0 and solution.fun > _TOLERANCE)

    # The sample's multipliers for all decisions.
    multipliers = np.maximum(-solution.ineqlin.marginals, 0.0)
    multipliers /= max(1.0, multipliers.sum())
    weighted_load = np.where(is_open, 0.0, np.inf)
    for multiplier, (g, load) in zip(multipliers, loads, strict=True):
        weighted_load[:, g] += multiplier * load
    return bool(weighted_load.min(axis=1).sum() - multipliers @ np.array(limits) > _TOLERANCE)
