"""Lower bounds of the `makespan` objective that hold for every placement.

Let T be a latency that some placement keeps. An operation v on device d then begins no earlier than
its head and ends no later than T less its tail,

    head(v, d) = max over edges u -> v of min over devices a of
                     head(u, a) + compute_s[u, a] + delay(u, v, a, d)
    tail(u, a) = max over edges u -> v of min over devices d of
                     delay(u, v, a, d) + compute_s[v, d] + tail(v, d)

so d is open to v only if head(v, d) + compute_s[v, d] + tail(v, d) <= T, and to a class of
co-located operations only if it is to all of them; heads and tails are then taken over open devices
alone, until nothing changes. A class without an open device refutes T.

What is left is checked for load. Within an interval [a, b], v computes on d for at least

    overlap(v, d) = min(compute_s, b - a, head + compute_s - a, b - (T - tail - compute_s)),

the last two if it runs as early and as late as it may (energetic reasoning; Baptiste, Le Pape and
Nuijten 2001, section 3.3), and all of that fits into the b - a that the device has. With x the
share of a class on each of its open devices, a linear program of

    sum over v of overlap(v, d) x(v, d) <= b - a,    sum over d of x(v, d) = 1

for some intervals, and of the memory limits, finds shares or refutes T. Devices with equal costs,
heads and tails are one in it, with as much time and memory as all of them together.

The bound is the largest T that was refuted (a destructive bound; Klein and Scholl 1999). The
priority order is not used: what bounds all schedules bounds the simulator's.

Of more than some thousand classes C the program is solved for every k-th, each counted k times. Its
multipliers y >= 0 of the intervals and memories, sum of y <= 1, then refute T for all of them by
weak duality, if

    sum over classes of min over open d of sum over rows r of d of y[r] load[r, c]
        > sum over rows of y[r] limit[r],

which is no less valid, takes one pass, and closes windows as before.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, sparse

from placement.instance import ColocationClasses, Instance
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Array

_PRECISION = 1e-3  # relative, to which the largest T is found
_TOLERANCE = 1e-6  # of the linear program, in units of T
_POINTS = 6  # of each device, where intervals begin and where they end
_PASSES = 4  # of closing devices; each is valid by itself
_LOOPED = 20_000  # edges: of more, compiling the recursion takes less than Python's loop
_WHOLE = 16_000  # classes: of more, the linear program is solved for a sample
_SAMPLE = 4_000  # classes that a sample has at most


class Windows(NamedTuple):
    """When operations run on devices, given a T: inf where a device is closed."""

    head_s: np.ndarray  # float64 [N, D]
    compute_s: np.ndarray  # float64 [N, D]
    tail_s: np.ndarray  # float64 [N, D]

    def through_s(self) -> np.ndarray:
        """Returns float64 [N, D]: the least latency with the operation on the device."""
        return self.head_s + self.compute_s + self.tail_s


class Edges(NamedTuple):
    """The edges, those of earlier receivers first."""

    senders: list[int]
    receivers: list[int]
    delay_s: np.ndarray  # float64 [E, D, D]


class _Rows(NamedTuple):
    """What devices have to hold, in units of their limits: R rows of the linear program."""

    group: np.ndarray  # int [R]: of the equal devices that a row is about
    load: np.ndarray  # float64 [R, C]: of classes that are there
    limits: np.ndarray  # float64 [R]


def makespan(problem: Instance, limits: SearchLimits) -> float:
    """Bounds the latency of every placement from below, in seconds; inf if none is feasible.

    Where the time ends, it is the largest T that was refuted until then, and no less than the
    longest path.
    """
    edges, compute_s = edges_of(problem), np.asarray(problem.costs.compute_s, np.float64)
    unlimited = windows_of(edges, problem.allowed_compute_s)
    path_s = float(unlimited.through_s().min(axis=1).max())

    def refuted(latency_s: float) -> bool:
        return _refuted(problem, edges, unlimited, latency_s)

    low, high = path_s, longest_s(edges, compute_s)
    if high == 0:  # nothing takes any time, and there is no interval to look at
        return 0.0
    if not np.isfinite(low) or refuted(high):
        return np.inf
    low = max(low, _TOLERANCE * high)  # below, it is not worth the search
    if low >= high or not refuted(low):
        return path_s
    while high > low * (1 + _PRECISION) and not limits.over():
        middle = np.sqrt(low * high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return float(low)


def edges_of(problem: Instance) -> Edges:
    """Returns the pairs of operations that edges join, each once with its longest delay."""
    senders, receivers, delay_s, _ = problem.dependencies
    place = np.argsort(problem.topological_order)
    order = np.lexsort((senders, place[receivers]))
    seconds = delay_s[order].astype(np.float64)
    return Edges(senders[order].tolist(), receivers[order].tolist(), seconds)


def windows_of(edges: Edges, compute_s: np.ndarray) -> Windows:
    """Returns the windows of operations that take float64 [N, D], inf where a device is closed."""
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    backwards = Edges(
        edges.receivers[::-1], edges.senders[::-1], edges.delay_s[::-1].transpose(0, 2, 1)
    )
    heads_s = _heads_s if len(edges.senders) <= _LOOPED else _compiled_heads_s
    return Windows(heads_s(edges, compute_s), compute_s, heads_s(backwards, compute_s))


def _heads_s(edges: Edges, compute_s: np.ndarray) -> np.ndarray:
    head_s = np.zeros_like(compute_s)
    for sender, receiver, delay_s in zip(*edges, strict=True):
        end_s = head_s[sender] + compute_s[sender]
        arrival_s = (end_s[:, None] + delay_s).min(axis=0)
        head_s[receiver] = np.maximum(head_s[receiver], arrival_s)
    return head_s


def _compiled_heads_s(edges: Edges, compute_s: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):  # float32 loses digits on long paths, and the bound its proof
        ends = (np.asarray(end, np.int32) for end in (edges.senders, edges.receivers))
        return np.asarray(_scanned_heads_s(*ends, edges.delay_s, compute_s))


@jax.jit
def _scanned_heads_s(senders: Array, receivers: Array, delay_s: Array, compute_s: Array) -> Array:
    def step(head_s: jax.Array, edge: tuple[Array, Array, Array]) -> tuple[jax.Array, None]:
        sender, receiver, between_s = edge
        end_s = head_s[sender] + compute_s[sender]
        arrival_s = jnp.maximum(head_s[receiver], (end_s[:, None] + between_s).min(axis=0))
        return jax.lax.dynamic_update_index_in_dim(head_s, arrival_s, receiver, 0), None

    return jax.lax.scan(step, jnp.zeros_like(compute_s), (senders, receivers, delay_s))[0]


def longest_s(edges: Edges, compute_s: np.ndarray) -> float:
    """Sums one thing after another, each at its slowest: no finite latency is longer.

    Args:
      edges: with delays [E, D, D].
      compute_s: [N, D].
    """
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    slow = [np.where(np.isfinite(a), a, 0.0) for a in (compute_s, edges.delay_s)]
    return float(slow[0].max(axis=1).sum() + slow[1].max(axis=(1, 2)).sum())


def closed(classes: ColocationClasses, edges: Edges, windows: Windows, latency_s: float) -> Windows:
    """Returns the windows of what is no slower than `latency_s`."""
    for _ in range(_PASSES):
        late = windows.through_s() > latency_s * (1 + _TOLERANCE)
        late_class = np.zeros(classes.compute_s.shape, bool)
        np.logical_or.at(late_class, classes.ids, late)
        compute_s = np.where(late_class[classes.ids], np.inf, windows.compute_s)
        if (np.isinf(compute_s) == np.isinf(windows.compute_s)).all():
            break
        windows = windows_of(edges, compute_s)
    return windows


def _refuted(problem: Instance, edges: Edges, windows: Windows, latency_s: float) -> bool:
    """Whether no placement is as fast as `latency_s`."""
    windows = closed(problem.classes, edges, windows, latency_s)
    impossible = np.isinf(windows.compute_s).all(axis=1).any()
    return bool(impossible) or _overloaded(problem, windows, latency_s)


def _overloaded(problem: Instance, windows: Windows, latency_s: float) -> bool:
    """Whether the linear program has no shares: its least excess, in units of T, is positive."""
    classes = problem.classes
    equal = base.equal_devices(np.concatenate(windows))
    columns, group = np.unique(equal, return_inverse=True)
    rows = _rows(problem, windows, latency_s, columns, group)
    if not len(rows.group):  # nothing takes time, and no memory is limited
        return False
    is_open = np.ones((len(classes.memory_bytes), len(columns)), bool)
    np.logical_and.at(is_open, classes.ids, np.isfinite(windows.compute_s[:, columns]))
    stride = 1 if len(is_open) <= _WHOLE else -(-len(is_open) // _SAMPLE)
    sample = rows._replace(load=stride * rows.load[:, ::stride])
    solved = _least_excess(sample, is_open[::stride])
    if solved.status != 0 or stride == 1:
        return bool(solved.status == 0 and solved.fun > _TOLERANCE)
    weights = np.maximum(-solved.ineqlin.marginals, 0.0)
    weights /= max(1.0, weights.sum())
    weighed = np.full(is_open.shape, np.inf)
    for nth in range(len(columns)):
        mine = rows.group == nth
        load = weights[mine] @ rows.load[mine]
        weighed[:, nth] = np.where(is_open[:, nth], load, np.inf)
    return bool(weighed.min(axis=1).sum() - weights @ rows.limits > _TOLERANCE)


def _rows(
    problem: Instance,
    windows: Windows,
    latency_s: float,
    columns: np.ndarray,
    group: np.ndarray,
) -> _Rows:
    """Makes the rows of intervals and of memories, of one device of each group."""
    classes = problem.classes
    count, num_classes = np.bincount(group), len(classes.memory_bytes)
    groups, loads, limits = [], [], []
    for nth, device in enumerate(columns.tolist()):
        for load_s, seconds in _intervals(windows, device, latency_s):
            groups.append(nth)
            loads.append(np.bincount(classes.ids, load_s, num_classes) / latency_s)
            limits.append(count[nth] * seconds / latency_s)
    for nth, capacity in enumerate(base.group_capacity_bytes(problem, group)):
        if np.isfinite(capacity):
            groups.append(nth)
            loads.append(classes.memory_bytes / max(capacity, 1.0))
            limits.append(capacity / max(capacity, 1.0))
    return _Rows(np.array(groups, int), np.array(loads), np.array(limits))


def _least_excess(rows: _Rows, is_open: np.ndarray) -> optimize.OptimizeResult:
    """Solves for the shares bool [C, K] of classes that exceed the limits the least."""
    num_classes, num_groups = is_open.shape
    shares = []
    for nth, load in zip(rows.group, rows.load, strict=True):
        row = np.zeros((num_classes, num_groups))
        row[:, nth] = load
        shares.append(sparse.csr_array(row.reshape(1, -1)))
    excess = sparse.csr_array(-np.ones((len(shares), 1)))
    whole = sparse.kron(sparse.eye_array(num_classes), np.ones((1, num_groups)))
    return optimize.linprog(
        np.append(np.zeros(is_open.size), 1.0),
        sparse.hstack([sparse.vstack(shares), excess], format="csr"),
        rows.limits,
        sparse.hstack([whole, sparse.csr_array((num_classes, 1))], format="csr"),
        np.ones(num_classes),
        bounds=[(0, float(share)) for share in is_open.flat] + [(0, None)],
    )


def _intervals(windows: Windows, device: int, latency_s: float) -> list[tuple[np.ndarray, float]]:
    """Returns intervals on a device: what operations must compute there [N], and length."""
    head_s, compute_s, tail_s = (field[:, device] for field in windows)
    some = np.isfinite(compute_s)
    if not some.any():
        return []
    shares = np.linspace(0, 1, _POINTS)
    begins = np.unique(np.append(np.quantile(head_s[some], shares), 0.0))
    ends = np.unique(np.append(latency_s - np.quantile(tail_s[some], shares), latency_s))
    load_s, intervals = np.zeros(len(head_s)), []
    for begin in begins:
        for end in ends[ends > begin]:
            early = (head_s + compute_s)[some] - begin
            late = end - latency_s + (tail_s + compute_s)[some]
            least = np.minimum(np.minimum(early, late), np.minimum(compute_s[some], end - begin))
            load_s[some] = np.maximum(least, 0.0)
            intervals.append((load_s.copy(), end - begin))
    return intervals
