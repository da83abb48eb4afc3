"""Decision diagrams for `makespan`, and sweeps over their layers.

A diagram has one layer for each operation, in order of priority. Once the first k operations are
placed, the others depend only on when each device is free and when each tensor that one of them
still reads arrives on each device: the *state*. Tensors with the same remaining readers form one
row of the state, because a reader waits for the last of them. So a state has few rows if the graph
is narrow, however long it is.

In a sweep each layer has a limited number of states. A layer places its operation, from each state,
on each device that is open to it within a latency T (`placement.solvers.bounds.makespan`). A state
is dropped if no completion can be as fast as T, or if another state is nowhere later. If more than
`width` states remain, a *restricted* diagram keeps the most promising ones, which finds placements
(a beam search). A *relaxed* diagram merges nearly equal states into one that is everywhere as early
as any of them, so the least latency of all is a lower bound. With fewer states than that, a sweep
is both, and exact (Bergman, Cire, van Hoeve and Hooker 2016, chapters 4 and 5). Departures: states
are vectors of times, and those at one point of a grid, as coarse as necessary, are merged, rather
than those of lowest rank; bounds of completions prune both kinds of diagrams.

The list schedule is written here once more (`_expand`): it places one operation of many states at
once, on all devices, and knows arrivals of rows instead of finish times of operations. The
simulators' steps could not represent merged states.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

from placement.problem import MemoryLimits, Problem
from placement.solvers.bounds import makespan
from placement.solvers.limits import SearchLimits

INITIAL_WIDTH = 64  # of the first diagram of a search
MAX_ROWS = 512  # rows of a state
_MAX_READERS = 4096  # remaining readers of all rows together
_NUM_FIRST_READERS = 16  # rows whose first readers bound completions
_TOLERANCE = 1e-6  # relative, of T
_MAX_WEIGHT_OPS = 4_000  # of the linear program of weights, whose time grows faster than linearly
_NUM_DOMINATING = 48  # states that all others are compared with
_FINEST = 1e-5  # the finest grid on which states are merged, as a share of T


class Layer(NamedTuple):
    """The change of a state's rows when one operation is placed: from L rows to L' new rows."""

    op: int
    input_rows: np.ndarray  # int [R]: the rows that the operation reads
    # New rows that continue old ones: the first old row of each new row is copied, others merged.
    copied_rows: np.ndarray  # int [K, 2]: new row, old row
    merged_rows: np.ndarray  # int [J, 2]: new row, old row
    output_rows: np.ndarray  # int [G]: the new rows of the operation's own tensors
    delay_s: np.ndarray  # float64 [G, D, D]: from its finish to the arrival of these tensors
    readers: np.ndarray  # int [M]: the remaining readers of all new rows, by row; N is the end
    row_starts: np.ndarray  # int [L']: where each row's readers start in `readers`
    first_readers: np.ndarray  # int [K, 3]: the rows read soonest, and their first two readers
    pending_rows: np.ndarray  # int [W]: new rows that an operation still reads, not only the end


class Diagram(NamedTuple):
    """A problem of N operations on D devices, in layers."""

    problem: Problem
    edges: makespan.Edges
    windows: makespan.Windows  # without a limit of the latency
    layers: list[Layer]


class SweepResult(NamedTuple):
    """The result of a sweep."""

    bound_s: float  # of a relaxed sweep: a lower bound of all placements; at most T
    latency_s: float  # of `placement`; inf if there is none
    placement: np.ndarray | None  # int [K]
    exact: bool  # whether no state was left out or merged, so that no placement is faster
    evaluations: int  # the number of operations placed, divided by N


class _Bounds(NamedTuple):
    """Bounds that follow from a latency T and prune states; N operations, D devices."""

    latency_s: float  # T
    limit_s: float  # T and the tolerance
    windows: makespan.Windows
    # float64, with a row N for the end:
    path_s: np.ndarray  # [N + 1, D]: from the start of each operation to the end, at least
    head_s: np.ndarray  # [N + 1, D]: the earliest start of each operation
    weights: np.ndarray  # [Y, D]: of the devices' loads
    remaining_load_s: np.ndarray  # [N + 1, Y]: the least weighted load of the layers from each on
    # [N + 1, D]: the earliest start of an operation without inputs in the layers from each on
    source_start_s: np.ndarray
    # [N]: the bytes of an operation's decision at its first operation, else 0; None without limits
    new_bytes: np.ndarray | None
    memory: MemoryLimits


class _States(NamedTuple):
    """S states with L rows, float64 times.

    Interchangeable devices are sorted, so a column may stand for another device.
    """

    time_s: np.ndarray  # [S, 1 + L, D]: when devices are free; when the rows of tensors arrive
    used_bytes: np.ndarray  # [S, D]; [S, 0] if memory is unlimited
    device: np.ndarray  # int8 [S, D]: the device that each column stands for


def make_diagram(problem: Problem, max_rows: int = MAX_ROWS) -> Diagram | None:
    """Orders a problem in layers.

    Co-located operations are joined by artificial tensors that arrive at once on their own device
    and never on any other. A tensor without readers is read by the end, which has a separate row.

    Returns:
      None if a state has more than `max_rows` rows, or rows with thousands of remaining readers,
      all of which every layer would look at.
    """
    decision, order = problem.decision, problem.priority_order
    edges = makespan.collect_edges(problem)
    num_ops, num_devices = len(order), edges.delay_s.shape[-1]

    # Edges from each operation to the next of its decision, earlier receivers first.
    grouped = order[np.argsort(decision[order], kind="stable")]
    is_joined = decision[grouped[1:]] == decision[grouped[:-1]]
    if is_joined.any():
        same_device_s = np.where(np.eye(num_devices, dtype=bool), 0.0, np.inf)
        senders = np.concatenate([np.array(edges.senders, int), grouped[:-1][is_joined]])
        receivers = np.concatenate([np.array(edges.receivers, int), grouped[1:][is_joined]])
        joined_s = np.broadcast_to(same_device_s, (is_joined.sum(), *same_device_s.shape))
        sort = np.argsort(np.argsort(order)[receivers], kind="stable")
        edges = makespan.Edges(
            senders[sort].tolist(),
            receivers[sort].tolist(),
            np.concatenate([edges.delay_s, joined_s])[sort],
        )

    # The readers of each operation's tensors; tensors with equal delays count as one.
    outputs: list[dict[bytes, set[int]]] = [{} for _ in range(num_ops)]
    for sender, receiver, delay_s in zip(*edges, strict=True):
        outputs[sender].setdefault(delay_s.tobytes(), set()).add(receiver)
    no_delay = np.zeros((num_devices, num_devices)).tobytes()
    position = np.append(np.argsort(order), num_ops).tolist()
    rows: list[frozenset[int]] = []  # the remaining readers of each row
    layers = []
    for op in order.tolist():
        new_rows: dict[frozenset[int], int] = {}
        copied: list[tuple[int, int]] = []
        merged: list[tuple[int, int]] = []
        for old_row, readers in enumerate(rows):
            if remaining := readers - {op}:
                pairs = merged if remaining in new_rows else copied
                pairs.append((new_rows.setdefault(remaining, len(new_rows)), old_row))
        own_outputs = outputs[op] or {no_delay: {num_ops}}
        output_rows = [
            new_rows.setdefault(frozenset(readers), len(new_rows))
            for readers in own_outputs.values()
        ]
        delay_s = np.stack([np.frombuffer(key).reshape(num_devices, -1) for key in own_outputs])
        input_rows = [row for row, readers in enumerate(rows) if op in readers]
        rows = list(new_rows)
        if len(rows) > max_rows or sum(map(len, rows)) > _MAX_READERS:
            return None
        row_readers = [sorted(row, key=position.__getitem__) for row in rows]
        soonest = sorted(range(len(rows)), key=lambda row: position[row_readers[row][0]])
        first_readers = [
            (row, row_readers[row][0], row_readers[row][:2][-1])
            for row in soonest[:_NUM_FIRST_READERS]
        ]
        row_starts = [0, *itertools.accumulate(map(len, row_readers))][:-1]
        layers.append(
            Layer(
                op,
                _ints(input_rows),
                _ints(copied).reshape(-1, 2),
                _ints(merged).reshape(-1, 2),
                _ints(output_rows),
                delay_s,
                _ints([reader for readers in row_readers for reader in readers]),
                _ints(row_starts),
                _ints(first_readers),
                _ints([row for row, readers in enumerate(row_readers) if readers[0] < num_ops]),
            )
        )
    windows = makespan.compute_windows(edges, problem.allowed_compute_s)
    return Diagram(problem, edges, windows, layers)


def _ints(values: list) -> np.ndarray:
    return np.array(values, np.int64)


def sweep(
    diagram: Diagram, latency_s: float, width: int, limits: SearchLimits, *, relaxed: bool
) -> SweepResult:
    """Runs one sweep.

    Args:
      diagram: the problem.
      latency_s: T, finite; slower placements are left out.
      width: the largest number of states.
      limits: if they are reached, the states of the current layer bound the result as they are.
      relaxed: whether excess states are merged rather than dropped.
    """
    bounds = _make_bounds(diagram, latency_s, limited=not relaxed)
    if bounds is None:
        return SweepResult(latency_s, np.inf, None, exact=True, evaluations=1)
    problem, num_layers = diagram.problem, len(diagram.layers)
    num_devices = bounds.path_s.shape[1]
    states = _States(
        np.zeros((1, 1, num_devices)),
        np.zeros((1, 0 if bounds.new_bytes is None else num_devices)),
        np.arange(num_devices, dtype=np.int8)[None],
    )
    first_equal = problem.interchangeable_devices
    groups = [np.flatnonzero(first_equal == first) for first in np.unique(first_equal)]
    interchangeable = [group for group in groups if len(group) > 1]
    choices: list[tuple[np.ndarray, np.ndarray]] = []  # of each layer: parent and device, int [S]
    exact, num_placed = True, 0
    for index, layer in enumerate(diagram.layers):
        evaluations = 1 + num_placed // num_layers
        refuted_s = latency_s if relaxed or exact else -np.inf
        refuted = SweepResult(refuted_s, np.inf, None, exact, evaluations)
        expanded = _expand(states, layer, bounds)
        if expanded is None:
            return refuted
        states, parent, device = expanded
        num_placed += len(parent)
        bound_s = _bound_completions(states, layer, index + 1, bounds)
        fast = np.flatnonzero(bound_s <= bounds.limit_s)
        if not len(fast):
            return refuted
        states, bound_s = _take(states, fast), bound_s[fast]
        for group in interchangeable:  # its columns are sorted by when they are free
            time_s, used_bytes, column = states
            finite_s = np.where(np.isfinite(time_s[:, :, group]), time_s[:, :, group], 0.0)
            by_free_s = np.lexsort((finite_s.sum(axis=1), time_s[:, 0, group]), axis=1)
            time_s[:, :, group] = np.take_along_axis(time_s[:, :, group], by_free_s[:, None], 2)
            column[:, group] = np.take_along_axis(column[:, group], by_free_s, axis=1)
            if used_bytes.shape[1]:
                used_bytes[:, group] = np.take_along_axis(used_bytes[:, group], by_free_s, axis=1)
        survivors, states, is_complete = _shrink(states, bound_s, width, bounds, relaxed=relaxed)
        exact &= is_complete
        choices.append((parent[fast[survivors]], device[fast[survivors]]))
        if limits.is_over():
            lower_bound_s = min(float(bound_s.min()), latency_s) if relaxed else -np.inf
            return SweepResult(lower_bound_s, np.inf, None, exact=False, evaluations=evaluations)
    end_s = states.time_s[:, 1, 0]
    state = int(end_s.argmin())
    best_s = float(end_s[state])
    decision = diagram.problem.decision
    placement = np.zeros(diagram.problem.num_decisions, int)
    for layer, (parent, device) in zip(reversed(diagram.layers), reversed(choices), strict=True):
        placement[decision[layer.op]], state = device[state], parent[state]
    lower_bound_s = min(best_s, latency_s) if relaxed or exact else -np.inf
    return SweepResult(lower_bound_s, best_s, placement, exact, 1 + num_placed // num_layers)


def _make_bounds(diagram: Diagram, latency_s: float, *, limited: bool) -> _Bounds | None:
    """Computes the bounds for a latency T; None if they refute it.

    Args:
      diagram: the problem.
      latency_s: T.
      limited: whether limits of memory count, if any memory is too small for all operations.
    """
    decision, memory = diagram.problem.decision, diagram.problem.memory_limits
    windows = makespan.close_windows(decision, diagram.edges, diagram.windows, latency_s)
    compute_s, (num_ops, num_devices) = windows.compute_s, windows.compute_s.shape
    is_open = np.isfinite(compute_s)
    if not is_open.any(axis=1).all():
        return None
    order = np.array([layer.op for layer in diagram.layers])

    # Weights of the devices' loads: each device alone, all equally, and the best. The best are the
    # multipliers of the relaxation without communication: they maximise the sum over operations of
    # z(v), where z(v) <= y(d) compute_s[v, d] and sum of y = 1. Of a large problem they are those
    # of a sample of the operations; any weights give a bound.
    sample_s = compute_s
    if num_ops > _MAX_WEIGHT_OPS:
        sample_s = np.random.default_rng(0).permutation(compute_s)[:_MAX_WEIGHT_OPS]
    op, device = np.nonzero(np.isfinite(sample_s))
    row, device_column = np.arange(len(op)), len(sample_s) + device
    values = np.concatenate([np.ones(len(op)), -sample_s[op, device]])
    ends = np.concatenate([row, row]), np.concatenate([op, device_column])
    is_weight = np.concatenate([np.zeros(len(sample_s)), np.ones(num_devices)])
    upper = sparse.csr_array((values, ends), shape=(len(op), len(is_weight)))
    solved = optimize.linprog(is_weight - 1.0, upper, np.zeros(len(op)), is_weight[None], [1.0])
    best = solved.x[len(sample_s) :] if solved.status == 0 else np.zeros(num_devices)
    best = np.maximum(best, 0.0) / max(1.0, best.sum())
    weights = np.stack([*np.eye(num_devices), np.full(num_devices, 1 / num_devices), best])

    finite_s = np.where(is_open, compute_s, 0.0)
    load_s = np.stack(
        [np.where(is_open, finite_s * row, np.inf).min(axis=1)[order] for row in weights], axis=1
    )
    remaining_load_s = np.concatenate(
        [load_s[::-1].cumsum(axis=0)[::-1], np.zeros((1, len(weights)))]
    )
    is_source = np.array([not len(layer.input_rows) for layer in diagram.layers])
    start_s = np.where(is_source[:, None], windows.head_s[order], np.inf)
    start_s = np.concatenate([start_s, np.full((1, num_devices), np.inf)])
    new_bytes = None
    memory_bytes = diagram.problem.decisions.memory_bytes
    if limited and memory_bytes.sum() > memory.capacity_bytes.min(initial=np.inf):
        new_bytes = np.zeros(num_ops)
        _, first = np.unique(decision[order], return_index=True)
        new_bytes[order[first]] = memory_bytes
    end_s = np.zeros((1, num_devices))
    return _Bounds(
        latency_s,
        latency_s * (1 + _TOLERANCE),
        windows,
        path_s=np.concatenate([compute_s + windows.tail_s, end_s]),
        head_s=np.concatenate([windows.head_s, end_s]),
        weights=weights,
        remaining_load_s=remaining_load_s,
        source_start_s=np.minimum.accumulate(start_s[::-1])[::-1],
        new_bytes=new_bytes,
        memory=memory,
    )


def _expand(
    states: _States, layer: Layer, bounds: _Bounds
) -> tuple[_States, np.ndarray, np.ndarray] | None:
    """Places a layer's operation on every open device of every state.

    Returns:
      S new states, their parents int [S] and the operation's devices int [S]; None without any.
    """
    op, input_s = layer.op, states.time_s[:, 1 + layer.input_rows]
    start_s = np.maximum(states.time_s[:, 0], bounds.head_s[op])
    if len(layer.input_rows):
        start_s = np.maximum(start_s, input_s.max(axis=1))
    is_open = start_s + bounds.path_s[op] <= bounds.limit_s
    if bounds.new_bytes is not None and bounds.new_bytes[op]:
        shares_memory = bounds.memory.devices.astype(float)
        limit_bytes = bounds.memory.capacity_bytes * (1 + _TOLERANCE) - bounds.new_bytes[op]
        is_full = (states.used_bytes @ shares_memory.T > limit_bytes) @ shares_memory > 0
        is_open &= ~is_full
    parent, column = np.nonzero(is_open)
    if not len(parent):
        return None
    state = np.arange(len(parent))
    finish_s = start_s[parent, column] + bounds.windows.compute_s[op, column]
    time_s = np.zeros((len(parent), 1 + len(layer.row_starts), start_s.shape[1]))
    time_s[:, 0] = states.time_s[parent, 0]
    time_s[state, 0, column] = finish_s
    time_s[:, 1 + layer.copied_rows[:, 0]] = states.time_s[parent][:, 1 + layer.copied_rows[:, 1]]
    for new_row, old_row in layer.merged_rows.tolist():
        row_s = time_s[:, 1 + new_row]
        np.maximum(row_s, states.time_s[parent, 1 + old_row], out=row_s)
    for new_row, delay_s in zip(layer.output_rows.tolist(), layer.delay_s, strict=True):
        row_s = time_s[:, 1 + new_row]
        np.maximum(row_s, finish_s[:, None] + delay_s[column], out=row_s)
    used_bytes, device = states.used_bytes[parent], states.device[parent]
    if bounds.new_bytes is not None:
        used_bytes[state, column] += bounds.new_bytes[op]
    return _States(time_s, used_bytes, device), parent, device[state, column]


def _bound_completions(
    states: _States, layer: Layer, next_layer: int, bounds: _Bounds
) -> np.ndarray:
    """Computes a lower bound of the latency of each state's completions, float64 [S].

    - A row of tensors that arrives at a[d], on a device that is free from f[d] on, is followed at
      least by each of its readers v, for min over d of max(a[d], f[d]) + compute_s[v, d] +
      tail(v, d).
    - For any weights y >= 0 of the devices with sum of y <= 1, the load is a bound: sum over d of
      y[d] f[d], plus the sum over the remaining operations of min over d of y[d] compute_s[v, d].

    It also moves times, in place, to the earliest time at which they can matter, so that states
    with the same future become equal. The next operation on a device reads a row or is a source.
    """
    free_s, rows_s = states.time_s[:, 0], states.time_s[:, 1:]
    earliest_read_s = np.minimum.reduceat(bounds.head_s[layer.readers], layer.row_starts)
    np.maximum(rows_s, earliest_read_s, out=rows_s)
    next_s = rows_s[:, layer.pending_rows].min(axis=(1, 2), initial=np.inf)
    next_s = np.minimum(next_s[:, None], bounds.source_start_s[next_layer])
    np.maximum(free_s, next_s, out=free_s, where=np.isfinite(next_s))
    rows_s[:, layer.pending_rows] = np.maximum(rows_s[:, layer.pending_rows], free_s[:, None])
    load_s = free_s @ bounds.weights.T + bounds.remaining_load_s[next_layer]
    bound_s = load_s.max(axis=1)
    row, *readers = layer.first_readers.T
    for reader in readers:
        path_s = rows_s[:, row] + bounds.path_s[reader]
        bound_s = np.maximum(bound_s, path_s.min(axis=2).max(axis=1))
    return bound_s


def _shrink(
    states: _States, bound_s: np.ndarray, width: int, bounds: _Bounds, *, relaxed: bool
) -> tuple[np.ndarray, _States, bool]:
    """Reduces the states to at most `width`.

    Returns:
      The old indices int [S] of the new states, the new states, and whether they stand for all old
      ones exactly.
    """
    num_states = len(bound_s)
    times_s = states.time_s.reshape(num_states, -1)
    features = np.concatenate([times_s, states.used_bytes], axis=1)
    total_s = np.minimum(times_s, bounds.limit_s).sum(axis=1)
    order = np.argsort(total_s, kind="stable") if relaxed else np.lexsort((total_s, bound_s))
    features = features[order]
    is_undominated = np.ones(num_states, bool)
    for n in range(min(_NUM_DOMINATING, num_states)):
        if is_undominated[n]:
            rest = np.flatnonzero(is_undominated[n + 1 :]) + n + 1
            is_undominated[rest[(features[n] <= features[rest]).all(axis=1)]] = False
    order = order[is_undominated]
    if len(order) <= width:
        return order, _take(states, order), True
    if not relaxed:
        order = order[:width]
        return order, _take(states, order), False

    # Merges the states at each point of the finest grid with at most `width` occupied points.
    states = _take(states, order)
    capacity_bytes = np.maximum(states.used_bytes.max(axis=0, initial=1.0), 1.0)
    features = np.concatenate(
        [
            np.minimum(states.time_s, 2 * bounds.latency_s).reshape(len(order), -1),
            states.used_bytes / capacity_bytes * bounds.latency_s,
        ],
        axis=1,
    )
    # A point is a hash of its coordinates. Points that collide are merged too, which is also valid.
    multipliers = np.random.default_rng(0).integers(-(2**62), 2**62, features.shape[1]) | 1
    grid_s = _FINEST * bounds.latency_s
    while True:
        hashes = (np.floor(features / grid_s).astype(np.int64) * multipliers).sum(axis=1)
        _, point = np.unique(hashes, return_inverse=True)
        if point.max() < width:
            break
        grid_s *= 2
    point_order = np.lexsort((bound_s[order], point))
    starts = np.searchsorted(point[point_order], np.arange(point.max() + 1))
    merged = _States(
        np.minimum.reduceat(states.time_s[point_order], starts),
        np.minimum.reduceat(states.used_bytes[point_order], starts),
        states.device[point_order[starts]],
    )
    return order[point_order[starts]], merged, False


def _take(states: _States, index: np.ndarray) -> _States:
    return _States(*(field[index] for field in states))
