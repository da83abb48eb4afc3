"""The `serial` objective by minimum s-t cuts (`graph_cut`).

The nodes of the cut problem are the decisions. A *move* to device a sets all of them at once. For
decision u, x[u] = 0 keeps its current device l[u], x[u] = 1 changes to a. The costs after the
move are the capacity of an s-t cut (`_move`). One auxiliary node for each "some reader" makes a
tensor count once however many operations read it (Stone 1977, with hyperedges).

With two devices, the move from "all on device 0" to device 1 is exact: the minimum cut is the
optimum, and the maximum flow proves it. With more devices, moves to one device after another are
repeated until none improves (alpha-expansion; Boykov, Veksler and Zabih 2001). Two lower bounds
then hold:

1. One device against the rest: the cut of two devices, a and one that takes the best value of all
   other devices for every operation and transfer and needs no transfers within.
2. An integer program (`_solve_integer_program`).

Cuts ignore memory. If the limits are broken, the integer program decides, with two devices too. It
does not know that copies of constants occupy memory, so that only its bound holds where they do.
"""

from functools import partial
from typing import NamedTuple

import chex
import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, sparse
from scipy.sparse import csgraph

from placement.problem import Problem
from placement.solvers import base, native
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_FLOW_PRECISION = 1e-12  # relative: a flow this close to the cut equals it but for rounding
_FLOW_UNITS = 2**30  # SciPy's flows are integers of 32 bits
_MAX_VARIABLES = 300_000  # of an integer program that is worth building
_MAX_COEFFICIENT = 1e4  # of the integer program's objective: HiGHS stops at gaps of 1e-6
_OPTIMALITY_TOLERANCE = 1e-6  # relative: HiGHS's own


class SerialCosts(NamedTuple):
    """The `serial` objective of K decisions on D devices, with T tensors between them."""

    compute_s: np.ndarray  # float64 [K, D]
    tensor_source: np.ndarray  # int [T]: the decision that produces the tensor
    transfer_s: np.ndarray  # float64 [T, D, D]
    # The P distinct pairs of a tensor and another decision that reads it.
    read_tensor: np.ndarray  # int [P]
    reader: np.ndarray  # int [P]
    fused_pairs: np.ndarray  # int [Q, 2]: the decisions at the ends of edges that can lose a fusion
    fusion_loss_s: np.ndarray  # float64 [Q]


class _Arcs(NamedTuple):
    tail: np.ndarray
    head: np.ndarray
    capacity: np.ndarray


def graph_cut(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Minimum cuts: exact with two devices, else alpha-expansion and a bound.

    Returns:
      Status OPTIMAL where the bound proves it; else FINISHED, or TIME_LIMIT where the integer
      program was cut off.
    """
    base.report_single_device(problem, limits)
    costs, capacity_bytes = collect_costs(problem), np.asarray(problem.costs.capacity_bytes)
    num_devices = costs.compute_s.shape[1]
    placement, bound_s = minimise(costs, limits)
    for device in range(num_devices if num_devices > 2 else 0):  # one against the rest
        rest = np.arange(num_devices) != device
        device_s, rest_s = costs.compute_s[:, device], costs.compute_s[:, rest].min(axis=1)
        transfer_s = np.zeros((len(costs.tensor_source), 2, 2))
        transfer_s[:, 0, 1] = costs.transfer_s[:, device, rest].min(axis=1)
        transfer_s[:, 1, 0] = costs.transfer_s[:, rest, device].min(axis=1)
        two_devices = costs._replace(
            compute_s=np.stack([device_s, rest_s], axis=1), transfer_s=transfer_s
        )
        bound_s = max(bound_s, solve_two_devices(two_devices)[1])

    def compute_value_s(labels: np.ndarray) -> float:
        """Returns the seconds of a placement int [K]; inf where it exceeds a memory."""
        is_exceeded = problem.peak_bytes(labels) > capacity_bytes
        return np.inf if is_exceeded.any() else evaluate(costs, labels)

    value_s = compute_value_s(placement)

    def is_optimal() -> bool:
        return bool(np.isfinite(value_s) and value_s <= bound_s * (1 + _OPTIMALITY_TOLERANCE))

    status = Status.OPTIMAL if is_optimal() else Status.FINISHED
    limits.report(1, value_s, placement)
    num_transfers = len(costs.tensor_source) * num_devices * (num_devices - 1)
    num_variables = costs.compute_s.size + num_transfers + len(costs.fusion_loss_s) * num_devices
    if status != Status.OPTIMAL and num_variables <= _MAX_VARIABLES:
        exact = _solve_integer_program(problem, costs, limits)
        bound_s = max(bound_s, exact.bound_s)
        status = exact.status
        if exact.placement is not None:
            exact_s = compute_value_s(exact.placement)
            if np.isinf(exact_s) and status == Status.OPTIMAL:  # copies of constants do not fit
                status = Status.FINISHED
            if exact_s < value_s:
                placement, value_s = exact.placement, exact_s
        if is_optimal():
            status = Status.OPTIMAL
    return Solution(None if np.isinf(value_s) else placement, bound_s=bound_s, status=status)


def collect_costs(problem: Problem) -> SerialCosts:
    """Collects the objective's terms of a problem, between different decisions."""
    graph = problem.graph
    ends = problem.decision[np.stack([graph.senders, graph.receivers])]
    outer_edges = np.flatnonzero(ends[0] != ends[1])
    _, first, tensor = np.unique(graph.tensors[outer_edges], return_index=True, return_inverse=True)
    reads = np.unique(np.stack([tensor, ends[1, outer_edges]]), axis=1)
    fusion_loss_s = np.asarray(problem.costs.fusion_loss_s, np.float64)
    fused_edges = outer_edges[fusion_loss_s[outer_edges] > 0]
    # The simulator's own float32 table, so that a sum of the same terms is the same number.
    transfer_s = problem.edge_transfer_s[outer_edges[first]]
    return SerialCosts(
        compute_s=problem.decisions.compute_s,
        tensor_source=ends[0, outer_edges[first]],
        transfer_s=transfer_s.astype(np.float64),
        read_tensor=reads[0],
        reader=reads[1],
        fused_pairs=ends[:, fused_edges].T,
        fusion_loss_s=fusion_loss_s[fused_edges],
    )


def evaluate(costs: SerialCosts, placement: np.ndarray) -> float:
    """Computes the seconds of a placement int [K] of the decisions."""
    chex.assert_shape(placement, costs.compute_s.shape[:1])
    chex.assert_type(placement, int)
    total_s = costs.compute_s[np.arange(len(placement)), placement].sum()
    reads = np.stack([costs.read_tensor, placement[costs.reader]])
    tensor, device = np.unique(reads, axis=1)  # a tensor is sent to each device once
    total_s += costs.transfer_s[tensor, placement[costs.tensor_source[tensor]], device].sum()
    is_separated = placement[costs.fused_pairs[:, 0]] != placement[costs.fused_pairs[:, 1]]
    return float(total_s + costs.fusion_loss_s[is_separated].sum())


def minimise(costs: SerialCosts, limits: SearchLimits) -> tuple[np.ndarray, float]:
    """Finds a placement without memory limits, the optimum with at most two devices.

    Returns:
      The placement int [K] of the decisions, and a lower bound in seconds; -inf with more devices.
    """
    num_decisions, num_devices = costs.compute_s.shape
    if num_devices <= 2:
        return solve_two_devices(costs)
    single_devices = [np.full(num_decisions, device) for device in range(num_devices)]
    best_single = min(single_devices, key=lambda start: evaluate(costs, start))
    expanded = []
    for placement in (costs.compute_s.argmin(axis=1), best_single):
        # Moves decisions to one device after another until no move improves the placement.
        num_failed_moves, device, value_s = 0, 0, evaluate(costs, placement)
        while num_failed_moves < num_devices and not limits.is_over():
            moved = _move(costs, placement, device)[0]
            moved_s = evaluate(costs, moved)
            if moved_s < value_s:
                placement, value_s, num_failed_moves = moved, moved_s, 0
            num_failed_moves += 1
            device = (device + 1) % num_devices
        expanded.append(placement)
    return min(expanded, key=lambda labels: evaluate(costs, labels)), -np.inf


def solve_two_devices(costs: SerialCosts) -> tuple[np.ndarray, float]:
    """Finds the optimum on one or two devices without memory limits.

    Returns:
      The placement int [K] of the decisions, and its value in seconds.
    """
    placement = np.zeros(len(costs.compute_s), int)
    if costs.compute_s.shape[1] == 1:
        return placement, evaluate(costs, placement)
    return _move(costs, placement, 1)


def _move(costs: SerialCosts, placement: np.ndarray, device: int) -> tuple[np.ndarray, float]:
    """Finds the best move to a device by a minimum cut.

    Nodes with x = 0 are on the source's side, and decisions that are on a already are the sink. Let
    a tensor of decision u have readers R(d) on device d before the move, and let T be the seconds
    of one transfer. After the move the tensor costs

        (1)  [x[u] = 0] T[l[u], a]     if some reader r has x[r] = 1 or l[r] = a
        (2)  [x[u] = 0] T[l[u], d]     for every d != a with some r in R(d), x[r] = 0
        (3)  [x[u] = 1] T[a, d]        for the same d

    To these the move adds

        (4)  compute_s[u, l[u] or a]   for every decision u
        (5)  fusion_loss_s[e]          for every edge e whose ends are on different devices

    Line (2) is not a capacity where T[l[u], d] > T[a, d]. The difference is then charged to
    x[u] = 0 whatever the readers do. That is right for x = 0 and too much elsewhere, so a move
    never costs more than its cut.

    Returns:
      The placement int [K] after the move, and the capacity of its cut, which the flow proves.
    """
    num_decisions, num_tensors = len(placement), len(costs.tensor_source)
    source, sink = num_decisions, num_decisions + 1
    node = np.where(placement == device, sink, np.arange(num_decisions))
    tensors = np.arange(num_tensors)
    home, read_device = placement[costs.tensor_source], placement[costs.reader]
    producer_node, reader_node = node[costs.tensor_source], node[costs.reader]

    # Line (1), some reader moves: producer -> auxiliary -> readers.
    moving_reader = sink + 1 + tensors
    arcs = [
        _Arcs(producer_node, moving_reader, costs.transfer_s[tensors, home, device]),
        _Arcs(moving_reader[costs.read_tensor], reader_node, np.full(len(reader_node), np.inf)),
    ]

    # Lines (2) and (3), some reader stays on d: readers -> auxiliary -> producer, or sink.
    can_stay = read_device != device
    reads = np.stack([costs.read_tensor[can_stay], read_device[can_stay]])
    (tensor, reading_device), group = np.unique(reads, axis=1, return_inverse=True)
    staying_reader = sink + 1 + num_tensors + np.arange(len(tensor))
    stay_s = costs.transfer_s[tensor, home[tensor], reading_device]
    move_s = costs.transfer_s[tensor, device, reading_device]
    common_s = np.minimum(stay_s, move_s)
    # An infinite difference would be inf - inf = nan, hence the inner choice.
    move_extra_s = np.where(move_s > common_s, move_s - np.where(move_s > common_s, common_s, 0), 0)
    stay_extra_s = np.where(stay_s > common_s, stay_s - np.where(stay_s > common_s, common_s, 0), 0)
    sinks = np.full(len(tensor), sink)
    arcs += [
        _Arcs(
            reader_node[can_stay], staying_reader[group.ravel()], np.full(can_stay.sum(), np.inf)
        ),
        _Arcs(staying_reader, sinks, common_s),
        _Arcs(staying_reader, producer_node[tensor], move_extra_s),
        _Arcs(producer_node[tensor], sinks, stay_extra_s),
    ]

    # Line (5): fusion_loss_s * (x[r] - x[u])^2 if u and r are on the same device before the move,
    # else fusion_loss_s * (1 - x[u] x[r]).
    first, second = costs.fused_pairs.T
    is_joined = placement[first] == placement[second]
    arcs += [
        _Arcs(node[second], node[first], costs.fusion_loss_s),
        _Arcs(node[first], np.where(is_joined, node[second], sink), costs.fusion_loss_s),
    ]

    # Line (4).
    compute_stay_s = costs.compute_s[np.arange(num_decisions), placement]
    can_move = node != sink
    fixed_s = float(compute_stay_s[~can_move].sum())
    arcs += [
        _Arcs(np.full(can_move.sum(), source), node[can_move], costs.compute_s[can_move, device]),
        _Arcs(node[can_move], np.full(can_move.sum(), sink), compute_stay_s[can_move]),
    ]

    all_arcs = _Arcs(*(np.concatenate(parts) for parts in zip(*arcs, strict=True)))
    num_nodes = sink + 1 + num_tensors + len(tensor)
    is_source_side, flow_s = minimum_cut(all_arcs, num_nodes, source, sink)
    return np.where(is_source_side[node], placement, device), fixed_s + flow_s


def minimum_cut(arcs: _Arcs, num_nodes: int, source: int, sink: int) -> tuple[np.ndarray, float]:
    """Finds a minimum s-t cut of real capacities, by flows of 32-bit integers.

    Each round rounds capacities down to multiples of a unit, a billionth of the largest useful
    capacity, and finds a maximum flow of whole units. The residual network has a maximum flow of
    only a few units, and the next round treats it in the same way with a smaller unit.

    Returns:
      bool [V], the nodes on the source's side, and the flow: no cut has less capacity. It is inf
      where every cut is infinite.
    """
    finite_s = float(arcs.capacity[np.isfinite(arcs.capacity)].sum())
    if finite_s == 0:
        finite_s = 1.0  # all cuts are free or infinite: any unit will do
    # Node V feeds the source with `max_s`, which exceeds every finite cut.
    max_s, super_source = 2 * finite_s, num_nodes
    is_useful = (arcs.tail != arcs.head) & (arcs.capacity > 0)
    tail = np.append(arcs.tail[is_useful], super_source)
    head = np.append(arcs.head[is_useful], source)
    capacity = np.append(np.minimum(arcs.capacity[is_useful], max_s), max_s)
    residual = sparse.coo_array((capacity, (tail, head)), (num_nodes + 1, num_nodes + 1)).tocsr()
    residual.data = np.minimum(residual.data, max_s)  # parallel arcs were added up

    flow_s, remaining_s = 0.0, finite_s
    while True:
        unit_s = 2 * remaining_s / _FLOW_UNITS
        units = residual.copy()
        units.data = np.minimum(residual.data / unit_s, _FLOW_UNITS).astype(np.int32)
        units.eliminate_zeros()
        flow = csgraph.maximum_flow(units, super_source, sink)
        flow_s += flow.flow_value * unit_s
        unused = (units - flow.flow).tocsr()
        unused.data = np.maximum(unused.data, 0)
        unused.eliminate_zeros()
        is_source_side = np.zeros(num_nodes + 1, bool)
        reached = csgraph.breadth_first_order(unused, super_source, return_predecessors=False)
        is_source_side[reached] = True
        residual = (residual - unit_s * flow.flow).tocsr()
        residual.data = np.maximum(residual.data, 0.0)
        is_cut = is_source_side[np.repeat(np.arange(num_nodes + 1), np.diff(residual.indptr))]
        is_cut &= ~is_source_side[residual.indices]
        last_s, remaining_s = remaining_s, float(residual.data[is_cut].sum())
        if remaining_s <= _FLOW_PRECISION * flow_s or remaining_s >= last_s:
            break
    is_infinite = not is_source_side[source]  # the super source's arc is the cut
    return is_source_side[:num_nodes] | is_infinite, np.inf if is_infinite else flow_s


def _solve_integer_program(problem: Problem, costs: SerialCosts, limits: SearchLimits) -> Solution:
    """Solves the problem as an integer program; the placement is of the decisions.

    Here t is a tensor of decision u, and f[t, s, d] = 1 if t is sent from device s to device d.

        minimise    sum_n,d compute_s[n, d] x[n, d] + sum_t,s,d T[t, s, d] f[t, s, d]
                    + sum_e,d fusion_loss_s[e] v[e, d]
        subject to  (6)   sum_d x[n, d] = 1
                    (7)   sum_n memory[n] x[n, d] <= capacity[d]
                    (8)   x[u, d] + sum_s f[t, s, d] >= x[r, d]      for every reader r of t
                    (9)   f[t, s, d] <= x[u, s]
                    (10)  v[e, d] >= x[u, d] - x[r, d]               for every edge e = (u, r)
                          x in {0, 1},  f, v >= 0
    """
    memory, memory_bytes = problem.memory_limits, problem.decisions.memory_bytes
    (num_decisions, num_devices), num_tensors = costs.compute_s.shape, len(costs.tensor_source)
    x = np.arange(num_decisions * num_devices).reshape(num_decisions, num_devices)
    f = x.size + np.arange(num_tensors * num_devices**2).reshape(-1, num_devices, num_devices)
    v = x.size + f.size + np.arange(len(costs.fusion_loss_s) * num_devices).reshape(-1, num_devices)
    seconds = np.concatenate(
        [costs.compute_s.ravel(), costs.transfer_s.ravel(), costs.fusion_loss_s.repeat(num_devices)]
    )
    constraints: list[optimize.LinearConstraint] = []

    def add_rows(
        columns: np.ndarray, coefficients: ArrayLike, lower: float = -np.inf, upper: float = np.inf
    ) -> None:
        """Adds lower <= sum_m coefficients[m] variable[columns[k, m]] <= upper, for all k."""
        count, width = columns.shape
        row = np.arange(count).repeat(width)
        entries = np.tile(coefficients, count), (row, columns.ravel())
        matrix = sparse.coo_array(entries, shape=(count, len(seconds))).tocsr()
        if count:
            constraints.append(optimize.LinearConstraint(matrix, lower, upper))

    add_rows(x, [1.0] * num_devices, lower=1.0, upper=1.0)  # line (6)
    # Line (7) in shares of a memory, as bytes are large numbers.
    for devices, capacity in zip(memory.devices, memory.capacity_bytes, strict=True):
        shares = np.tile(memory_bytes / max(capacity, 1.0), devices.sum())
        add_rows(x[:, devices].T.reshape(1, -1), shares, upper=min(capacity, 1.0))
    producer = costs.tensor_source[costs.read_tensor]
    first, second = costs.fused_pairs.T
    for d in range(num_devices):
        senders = np.flatnonzero(np.arange(num_devices) != d)
        received = f[costs.read_tensor][:, senders, d]
        terms = np.column_stack([x[producer, d], x[costs.reader, d], received])
        add_rows(terms, [1.0, -1.0, *[1.0] * len(senders)], lower=0.0)  # line (8)
        for s in senders:
            terms = np.column_stack([f[:, s, d], x[costs.tensor_source, s]])
            add_rows(terms, [1.0, -1.0], upper=0.0)  # line (9)
        terms = np.column_stack([v[:, d], x[first, d], x[second, d]])
        add_rows(terms, [1.0, -1.0, 1.0], lower=0.0)  # line (10)

    is_possible = np.isfinite(seconds)
    unit_s = seconds[is_possible].max(initial=0.0) / _MAX_COEFFICIENT or 1.0
    solve = partial(
        optimize.milp,
        np.where(is_possible, seconds, 0.0) / unit_s,
        integrality=np.arange(len(seconds)) < x.size,
        bounds=optimize.Bounds(0, is_possible.astype(float)),
        constraints=constraints,
        options={"time_limit": limits.remaining_s(), "mip_rel_gap": 0.0},
    )
    result = native.call(solve, limits)
    if result is None:
        return Solution(None, bound_s=-np.inf, status=Status.TIME_LIMIT)
    if result.status == 2:
        return Solution(None, status=Status.INFEASIBLE)
    bound_s = -np.inf if result.mip_dual_bound is None else result.mip_dual_bound * unit_s
    labels = None if result.x is None else result.x[: x.size].reshape(x.shape).argmax(axis=1)
    status = Status.OPTIMAL if result.status == 0 else Status.TIME_LIMIT
    return Solution(labels, bound_s=bound_s, status=status)
