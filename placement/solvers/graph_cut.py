"""`graph_cut`: the `serial` objective by minimum s-t cuts.

Co-location classes are nodes. A *move* to device a asks for every class at once whether it stays
where it is, on l[n], or goes to a: x[n] = 0 or 1. What a placement costs after the move is, for a
tensor of class u whose readers on device d are R(d), with T the seconds of one crossing,

    [x[u] = 0]  T[l[u], a]             if some reader x[r] = 1 or l[r] = a,
  + [x[u] = 0]  T[l[u], d]  summed over d != a with some r in R(d), x[r] = 0,
  + [x[u] = 1]  T[a, d]     summed over the same d,

beside compute_s[n, l[n] or a] for every class and fusion_loss_s for every edge whose ends are
apart. It is the capacity of a cut: x[n] = 0 is the source's side, classes that are on a already are
the sink, and one auxiliary node for each condition "some reader" lets a tensor count once however
many read it (Stone 1977 with hyperedges). The second term is no capacity where T[l[u], d] > T[a,
d]; the difference is then charged to x[u] = 0 whatever the readers do, which is right for x = 0 and
too much elsewhere. So a move that the cut finds never costs more than it says.

With two devices the move from "all on device 0" to device 1 is exact: its minimum cut is the
optimum, and the flow proves it. With several devices moves are repeated, a device after another,
until none gains (alpha-expansion, Boykov, Veksler and Zabih 2001). Two lower bounds are then valid:

    one device against the rest: a cut of two devices, a and another that takes the best that the
    rest offer for each operation and crossing, and among which nothing crosses;

    the integer program, whose f carries the tensor of u to d where no reader may do without it:

        minimise    sum_n,d compute_s[n, d] x[n, d] + sum_t,s,d T[t, s, d] f[t, s, d]
                    + sum_e,d fusion_loss_s[e] v[e, d]
        subject to  sum_d x[n, d] = 1,  sum_n memory[n] x[n, d] <= capacity[d],
                    x[u, d] + sum_s f[t, s, d] >= x[r, d],  f[t, s, d] <= x[u, s],
                    v[e, d] >= x[u, d] - x[r, d],  x in {0, 1}, f, v >= 0.

Cuts know no memory: where limits are broken, the integer program decides, with two devices too.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import chex
import numpy as np
from scipy import optimize, sparse
from scipy.sparse import csgraph

from placement.instance import Instance, MemoryLimits
from placement.solvers import native
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_EXACT = 1e-12  # relative: when a flow is as large as the cut, but for float64's rounding
_UNITS = 2**30  # flows are integers of 32 bits
_LARGEST = 300_000  # variables of an integer program that is worth building
_LARGE = 1e4  # the largest coefficient of an objective, as HiGHS stops at gaps of 1e-6
_SAME = 1e-6  # relative: HiGHS's tolerance; a placement as good as its bound is optimal


class Costs(NamedTuple):
    """The serial objective of C classes on D devices; T tensors that leave their class."""

    compute_s: np.ndarray  # float64 [C, D]
    source: np.ndarray  # int [T]: the class that produces the tensor
    transfer_s: np.ndarray  # float64 [T, D, D]
    # The distinct pairs of a tensor and another class that reads it.
    tensor: np.ndarray  # int [P]
    reader: np.ndarray  # int [P]
    cut: np.ndarray  # int [Q, 2]: classes that edges join
    fusion_loss_s: np.ndarray  # float64 [Q]: what separating them costs


class _Arcs(NamedTuple):
    tail: np.ndarray
    head: np.ndarray
    capacity: np.ndarray


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Minimum cuts: exact with two devices, else alpha-expansion and a bound.

    Returns:
      Status 'optimal' where the bound proves it; else 'finished', or 'time limit' where the integer
      program was cut off.
    """
    del seed  # nothing is random
    classes = problem.classes
    memory = problem.memory_limits
    costs = costs_of(problem)
    num_devices = costs.compute_s.shape[1]
    if num_devices <= 2:
        labels, bound_s = two_devices(costs)
    else:
        labels = _expanded(costs, limits)
        bound_s = max(against_rest(costs, device) for device in range(num_devices))
    fits = _fits(labels, classes.memory_bytes, memory)
    value_s = value(costs, labels) if fits else np.inf
    status = Status.OPTIMAL if _same(value_s, bound_s) else Status.FINISHED
    limits.tell(1, value_s, labels[classes.ids] if fits else None)
    if status != Status.OPTIMAL and _variables(costs) <= _LARGEST:
        exact = _integer_program(costs, classes.memory_bytes, memory, limits)
        bound_s = max(bound_s, exact.bound_s)
        if exact.placement is not None and value(costs, exact.placement) < value_s:
            labels, value_s = exact.placement, value(costs, exact.placement)
        status = Status.OPTIMAL if _same(value_s, bound_s) else exact.status
    if np.isinf(value_s):
        return Solution(None, bound_s=bound_s, status=status)
    return Solution(labels[classes.ids], bound_s=bound_s, status=status)


def costs_of(problem: Instance) -> Costs:
    """Collects the objective's terms of a problem, between different classes."""
    graph, classes = problem.graph, problem.classes
    ends = classes.ids[np.stack([graph.senders, graph.receivers])]
    apart = np.flatnonzero(ends[0] != ends[1])
    _, first, number = np.unique(graph.tensors[apart], return_index=True, return_inverse=True)
    pairs = np.unique(np.stack([number, ends[1, apart]]), axis=1)
    lost_s = np.asarray(problem.costs.fusion_loss_s, np.float64)
    separable = apart[lost_s[apart] > 0]
    # The simulator's own float32 table, so that a sum of the same terms is the same number.
    transfer_s = problem.edge_transfer_s[apart[first]]
    return Costs(
        compute_s=classes.compute_s,
        source=ends[0, apart[first]],
        transfer_s=transfer_s.astype(np.float64),
        tensor=pairs[0],
        reader=pairs[1],
        cut=ends[:, separable].T,
        fusion_loss_s=lost_s[separable],
    )


def value(costs: Costs, labels: np.ndarray) -> float:
    """Computes seconds of a placement int [C] of the classes."""
    chex.assert_shape(labels, costs.compute_s.shape[:1])
    chex.assert_type(labels, int)
    total = costs.compute_s[np.arange(len(labels)), labels].sum()
    read = np.unique(np.stack([costs.tensor, labels[costs.reader]]), axis=1)
    total += costs.transfer_s[read[0], labels[costs.source[read[0]]], read[1]].sum()
    separated = labels[costs.cut[:, 0]] != labels[costs.cut[:, 1]]
    return float(total + costs.fusion_loss_s[separated].sum())


def two_devices(costs: Costs) -> tuple[np.ndarray, float]:
    """Finds the optimum on one or two devices, memory aside: labels int [C], and its value."""
    labels = np.zeros(len(costs.compute_s), int)
    if costs.compute_s.shape[1] == 1:
        return labels, value(costs, labels)
    return _move(costs, labels, 1)


def against_rest(costs: Costs, device: int) -> float:
    """Bounds from below: the device against one as good as the best of all the others."""
    rest = np.arange(costs.compute_s.shape[1]) != device
    compute_s = np.stack([costs.compute_s[:, device], costs.compute_s[:, rest].min(axis=1)], axis=1)
    transfer_s = np.zeros((len(costs.source), 2, 2))
    transfer_s[:, 0, 1] = costs.transfer_s[:, device, rest].min(axis=1)
    transfer_s[:, 1, 0] = costs.transfer_s[:, rest, device].min(axis=1)
    return two_devices(costs._replace(compute_s=compute_s, transfer_s=transfer_s))[1]


def _expanded(costs: Costs, limits: SearchLimits) -> np.ndarray:
    """Descends from each class's fastest device and from the best single device."""
    num_classes, num_devices = costs.compute_s.shape
    singles = [np.full(num_classes, device) for device in range(num_devices)]
    starts = [costs.compute_s.argmin(axis=1), min(singles, key=lambda s: value(costs, s))]
    return min((_descended(costs, s, limits) for s in starts), key=lambda s: value(costs, s))


def _descended(costs: Costs, labels: np.ndarray, limits: SearchLimits) -> np.ndarray:
    """Moves classes to one device after another until no move gains."""
    num_devices = costs.compute_s.shape[1]
    in_vain, device, value_s = 0, 0, value(costs, labels)
    while in_vain < num_devices and not limits.over():
        moved = _move(costs, labels, device)[0]
        moved_s = value(costs, moved)
        if moved_s < value_s:
            labels, value_s, in_vain = moved, moved_s, 0
        in_vain += 1
        device = (device + 1) % num_devices
    return labels


def _move(costs: Costs, labels: np.ndarray, device: int) -> tuple[np.ndarray, float]:
    """Finds the best move to a device: the labels after it, and its cost that the flow proves."""
    num_classes = len(labels)
    source, sink = num_classes, num_classes + 1
    node = np.where(labels == device, sink, np.arange(num_classes))
    stay_s = costs.compute_s[np.arange(num_classes), labels]
    go_s = costs.compute_s[:, device]
    free = node != sink
    fixed_s = float(stay_s[~free].sum())
    unary = [
        _Arcs(np.full(free.sum(), source), node[free], go_s[free]),
        _Arcs(node[free], np.full(free.sum(), sink), stay_s[free]),
    ]
    arcs, num_nodes = _crossings(costs, labels, device, node, sink)
    arcs += [*_separations(costs, labels, node, sink), *unary]
    joined = _Arcs(*(np.concatenate(parts) for parts in zip(*arcs, strict=True)))
    stays, flow_s = minimum_cut(joined, num_nodes, source, sink)
    return np.where(stays[node], labels, device), fixed_s + flow_s


def _crossings(
    costs: Costs, labels: np.ndarray, device: int, node: np.ndarray, sink: int
) -> tuple[list[_Arcs], int]:
    """Makes the arcs of tensors' crossings; counts nodes with the auxiliary ones."""
    own, read_on = labels[costs.source], labels[costs.reader]
    u, r = node[costs.source], node[costs.reader]
    # Some reader goes: source -> auxiliary -> readers.
    each = np.arange(len(u))
    going = sink + 1 + each
    arcs = [
        _Arcs(u, going, costs.transfer_s[each, own, device]),
        _Arcs(going[costs.tensor], r, np.full(len(r), np.inf)),
    ]
    # Some reader stays on d: readers -> auxiliary -> source, or sink.
    stays = read_on != device
    keys = np.stack([costs.tensor[stays], read_on[stays]])
    groups, group = np.unique(keys, axis=1, return_inverse=True)
    staying = sink + 1 + len(u) + np.arange(groups.shape[1])
    of, on = groups
    from_here, from_there = costs.transfer_s[of, own[of], on], costs.transfer_s[of, device, on]
    sinks = np.full(len(of), sink)
    least = np.minimum(from_here, from_there)
    more = np.where(from_there > least, from_there - np.where(from_there > least, least, 0), 0)
    less = np.where(from_here > least, from_here - np.where(from_here > least, least, 0), 0)
    arcs += [
        _Arcs(r[stays], staying[group.ravel()], np.full(stays.sum(), np.inf)),
        _Arcs(staying, sinks, least),
        _Arcs(staying, u[of], more),
        _Arcs(u[of], sinks, less),
    ]
    return arcs, sink + 1 + len(u) + len(staying)


def _separations(costs: Costs, labels: np.ndarray, node: np.ndarray, sink: int) -> list[_Arcs]:
    """Makes the arcs of lost fusions.

    They cost fusion_loss_s (x[r] - x[u])^2 where the ends are together, else fusion_loss_s
    (1 - x[u] x[r]).
    """
    one, other = costs.cut.T
    together = labels[one] == labels[other]
    return [
        _Arcs(node[other], node[one], costs.fusion_loss_s),
        _Arcs(node[one], np.where(together, node[other], sink), costs.fusion_loss_s),
    ]


def minimum_cut(arcs: _Arcs, num_nodes: int, source: int, sink: int) -> tuple[np.ndarray, float]:
    """Finds a minimum s-t cut of real capacities, by flows of 32-bit integers.

    A flow is rounded down to units of a billionth of the largest useful capacity. What it leaves is
    a network whose maximum flow is some units, and is treated in the same way, with smaller ones.

    Returns:
      bool [V], the nodes on the source's side, and the flow: no cut has less capacity. It is inf
      where every cut is infinite.
    """
    finite_s = float(arcs.capacity[np.isfinite(arcs.capacity)].sum())
    if finite_s == 0:
        finite_s = 1.0  # all cuts are free or infinite: any unit will do
    residual, start = _network(arcs, num_nodes, source, 2 * finite_s), num_nodes
    flow_s, remaining_s = 0.0, finite_s
    while True:
        unit = 2 * remaining_s / _UNITS
        units = residual.copy()
        units.data = np.minimum(residual.data / unit, _UNITS).astype(np.int32)
        units.eliminate_zeros()
        flow = csgraph.maximum_flow(units, start, sink)
        flow_s += flow.flow_value * unit
        left = (units - flow.flow).tocsr()
        side = _reached(left, start)
        residual = (residual - unit * flow.flow).tocsr()
        residual.data = np.maximum(residual.data, 0.0)
        crossing = side[np.repeat(np.arange(num_nodes + 1), np.diff(residual.indptr))]
        crossing &= ~side[residual.indices]
        last_s, remaining_s = remaining_s, float(residual.data[crossing].sum())
        if remaining_s <= _EXACT * flow_s or remaining_s >= last_s:
            break
    infinite = not side[source]
    return side[:num_nodes] | infinite, np.inf if infinite else flow_s


def _network(arcs: _Arcs, num_nodes: int, source: int, most_s: float) -> sparse.csr_array:
    """Makes capacities [V + 1, V + 1] without loops; node V feeds the source with what helps."""
    useful = (arcs.tail != arcs.head) & (arcs.capacity > 0)
    tail = np.append(arcs.tail[useful], num_nodes)
    head = np.append(arcs.head[useful], source)
    capacity = np.append(np.minimum(arcs.capacity[useful], most_s), most_s)
    network = sparse.coo_array((capacity, (tail, head)), (num_nodes + 1, num_nodes + 1)).tocsr()
    network.data = np.minimum(network.data, most_s)
    return network


def _reached(left: sparse.csr_array, start: int) -> np.ndarray:
    """Returns bool [V + 1]: the nodes that more flow could reach."""
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = np.zeros(left.shape[0], bool)
    reached[csgraph.breadth_first_order(left, start, return_predecessors=False)] = True
    return reached


def _variables(costs: Costs) -> int:
    num_devices = costs.compute_s.shape[1]
    crossings = len(costs.source) * num_devices * (num_devices - 1)
    return costs.compute_s.size + crossings + len(costs.fusion_loss_s) * num_devices


def _integer_program(
    costs: Costs, memory_bytes: np.ndarray, memory: MemoryLimits, limits: SearchLimits
) -> Solution:
    """Solves the integer program of the module's docstring; the placement is of the classes."""
    (num_classes, num_devices), num_tensors = costs.compute_s.shape, len(costs.source)
    x = np.arange(num_classes * num_devices).reshape(num_classes, num_devices)
    f = x.size + np.arange(num_tensors * num_devices**2).reshape(-1, num_devices, num_devices)
    v = x.size + f.size + np.arange(len(costs.fusion_loss_s) * num_devices).reshape(-1, num_devices)
    seconds = np.concatenate(
        [costs.compute_s.ravel(), costs.transfer_s.ravel(), costs.fusion_loss_s.repeat(num_devices)]
    )
    possible = np.isfinite(seconds)
    unit_s = seconds[possible].max(initial=0.0) / _LARGE or 1.0
    search = partial(
        optimize.milp,
        np.where(possible, seconds, 0.0) / unit_s,
        integrality=np.arange(len(seconds)) < x.size,
        bounds=optimize.Bounds(0, possible.astype(float)),
        constraints=[
            _rows(len(seconds), x, [1.0] * num_devices, lower=1.0, upper=1.0),
            *_memory_rows(len(seconds), x, memory_bytes, memory),
            *_crossing_rows(len(seconds), costs, x, f, v),
        ],
        options={"time_limit": limits.left_s(), "mip_rel_gap": 0.0},
    )
    result = native.call(search, limits)
    if result is None:
        return Solution(None, bound_s=-np.inf, status=Status.TIME_LIMIT)
    if result.status == 2:
        return Solution(None, status=Status.INFEASIBLE)
    bound_s = -np.inf if result.mip_dual_bound is None else result.mip_dual_bound * unit_s
    labels = None if result.x is None else result.x[: x.size].reshape(x.shape).argmax(axis=1)
    return Solution(
        labels, bound_s=bound_s, status=Status.OPTIMAL if result.status == 0 else Status.TIME_LIMIT
    )


def _memory_rows(
    num_variables: int, x: np.ndarray, memory_bytes: np.ndarray, memory: MemoryLimits
) -> list[optimize.LinearConstraint]:
    """Makes rows that keep memories, in shares of them, as bytes are large numbers."""
    return [
        _rows(
            num_variables,
            x[:, devices].T.reshape(1, -1),
            np.tile(memory_bytes / max(capacity, 1.0), devices.sum()),
            upper=min(capacity, 1.0),
        )
        for devices, capacity in zip(memory.devices, memory.capacity_bytes, strict=True)
    ]


def _crossing_rows(
    num_variables: int, costs: Costs, x: np.ndarray, f: np.ndarray, v: np.ndarray
) -> list[optimize.LinearConstraint]:
    num_devices = x.shape[1]
    produced, one, other = costs.source[costs.tensor], costs.cut[:, 0], costs.cut[:, 1]
    constraints = []
    for d in range(num_devices):
        elsewhere = np.arange(num_devices) != d
        carried = f[costs.tensor][:, elsewhere, d]
        read = np.column_stack([x[produced, d], x[costs.reader, d], carried])
        constraints.append(
            _rows(num_variables, read, [1.0, -1.0, *[1.0] * carried.shape[1]], lower=0.0)
        )
        for s in np.flatnonzero(elsewhere):
            held = np.column_stack([f[:, s, d], x[costs.source, s]])
            constraints.append(_rows(num_variables, held, [1.0, -1.0], upper=0.0))
        apart = np.column_stack([v[:, d], x[one, d], x[other, d]])
        constraints.append(_rows(num_variables, apart, [1.0, -1.0, 1.0], lower=0.0))
    return [rows for rows in constraints if rows.A.shape[0]]


def _rows(
    num_variables: int,
    columns: np.ndarray,
    coefficients: Sequence[float] | np.ndarray,
    *,
    lower: float = -np.inf,
    upper: float = np.inf,
) -> optimize.LinearConstraint:
    """Makes rows lower <= sum_m coefficients[m] variable[columns[k, m]] <= upper, for all k."""
    count, width = columns.shape
    row = np.arange(count).repeat(width)
    entries = np.tile(coefficients, count), (row, columns.ravel())
    matrix = sparse.coo_array(entries, shape=(count, num_variables)).tocsr()
    return optimize.LinearConstraint(matrix, lower, upper)


def _same(value_s: float, bound_s: float) -> bool:
    return bool(np.isfinite(value_s) and value_s <= bound_s * (1 + _SAME))


def _fits(labels: np.ndarray, memory_bytes: np.ndarray, memory: MemoryLimits) -> bool:
    used = np.bincount(labels, memory_bytes, minlength=memory.devices.shape[1])
    return bool((memory.devices @ used <= memory.capacity_bytes).all())
