"""Lower bounds of `max_load` and `subgraph` by counting and linear programs, in under a second.

`max_load` is bounded by the larger of two numbers. The first is the relaxation of the assignment
without communication, over groups g of equal devices,

    minimise    T
    subject to  (1)  sum_g y[c, g] = 1
                (2)  sum_c compute_s[c, g] y[c, g] <= T |g|
                (3)  sum_c memory_bytes[c] y[c, g] <= memory of g
                     y >= 0.

The second is a pigeonhole bound over j heavy decisions. Let P[d, k] be the seconds of the k
lightest of them on device d. A device with a load below T has room for as many of them as there are
k with P[d, k] < T, and all devices together need room for j. So some load is at least

    the j-th smallest of all P[d, k].

`subgraph` is bounded by the longest path with every operation on its fastest device. If
accelerators cannot hold everything, the host has to take a share h[c] of decision c:

    minimise    T
    subject to  (4)  T >= t[v] >= t[u] + (1 - h) * fastest accelerator + h * fastest host
                (5)  sum_c memory_bytes[c] (1 - h[c]) <= memory of all accelerators
                     0 <= h <= 1.

A placement on a single device has no communication, so no bound charges any.
"""

from typing import Any, NamedTuple

import chex
import numpy as np
from scipy import optimize, sparse

from placement.graphs import dag
from placement.problem import Problem, find_equal_devices

_TOLERANCE = 1e-7  # relative: of linear programs
_HEAVY_DECISIONS = 16  # per device: with more, the relaxation is as good


class Pigeonhole(NamedTuple):
    """A bound by heavy decisions: some device d computes more than `capacity[d]` of the members."""

    bound_s: float  # the least load of a device that computes more than its `capacity`
    members: np.ndarray  # int [J]: decisions
    capacity: np.ndarray  # int [D]: how many members a device computes in less than `bound_s`


def bound_max_load(problem: Problem) -> float:
    """Bounds the objective `max_load` from below; inf where no placement can be feasible."""
    decisions = problem.decisions
    capacity = np.asarray(problem.costs.capacity_bytes, np.float64)
    first_equal = find_equal_devices(np.concatenate([capacity[None], decisions.compute_s]))
    columns, group, size = np.unique(first_equal, return_inverse=True, return_counts=True)
    compute_s, is_allowed = decisions.compute_s[:, columns], decisions.allowed[:, columns]
    # Variable 0 is T; one share follows for each decision and group of devices that can run it.
    decision_id, group_id = np.nonzero(is_allowed)
    shares = np.arange(len(decision_id))
    shape = (len(size), len(shares))
    load_s = sparse.coo_array((compute_s[is_allowed], (group_id, shares)), shape)
    group_bytes = problem.sum_group_capacity(group)
    is_limited = np.isfinite(group_bytes)
    used = sparse.coo_array(
        (decisions.memory_bytes[decision_id], (group_id, shares)), shape
    ).tocsr()
    upper = sparse.block_array(
        [
            [sparse.coo_array(-size[:, None].astype(float)), load_s],
            [sparse.coo_array((int(is_limited.sum()), 1)), used[is_limited]],
        ]
    )
    ones = np.ones(len(shares))
    sums = sparse.coo_array((ones, (decision_id, shares + 1)), (len(compute_s), len(shares) + 1))
    relaxed_s = _solve_linear_program(
        np.eye(1, len(shares) + 1)[0],
        upper.tocsr(),
        np.concatenate([np.zeros(len(size)), group_bytes[is_limited]]),
        sums.tocsr(),
        np.ones(len(compute_s)),
        (0, None),
    )
    return max(relaxed_s, pigeonhole(decisions.compute_s).bound_s)


def pigeonhole(compute_s: np.ndarray) -> Pigeonhole:
    """Returns the best pigeonhole bound of decisions that compute for float64 [K, D]."""
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    num_decisions, num_devices = compute_s.shape
    heaviest = np.argsort(-compute_s.min(axis=1), kind="stable")
    best = Pigeonhole(0.0, heaviest[:1], np.zeros(num_devices, int))
    for count in range(1, min(num_decisions, _HEAVY_DECISIONS * num_devices + 1) + 1):
        members = heaviest[:count]
        loads = np.sort(compute_s[members], axis=0).cumsum(axis=0)
        bound_s = float(np.partition(loads.ravel(), count - 1)[count - 1])
        if bound_s > best.bound_s:
            best = Pigeonhole(bound_s, members, (loads < bound_s).sum(axis=0))
    return best


def bound_subgraph(problem: Problem) -> float:
    """Bounds the objective `subgraph` from below; inf where no placement can be feasible."""
    graph, decisions, memory = problem.graph, problem.decisions, problem.memory_limits
    compute_s, total_bytes = problem.allowed_compute_s, decisions.memory_bytes.sum()
    is_host = np.asarray(problem.costs.accelerator) < 0
    is_limited = np.asarray(memory.devices.any(axis=0))
    capacity = memory.capacity_bytes[memory.devices[:, ~is_host].any(axis=1)].sum()
    is_host_needed = (is_host & ~is_limited).any() and not is_host.all()
    is_host_needed &= is_limited[~is_host].all() and total_bytes > capacity
    if not is_host_needed:
        fastest_s = compute_s.min(axis=1)
        return float(dag.longest_paths(graph.senders, graph.receivers, fastest_s).max())

    # The program of lines (4) and (5); its variables are T, t [N], h [K].
    host_s = compute_s[:, is_host].min(axis=1)
    accelerator_s = compute_s[:, ~is_host].min(axis=1)
    num_ops, num_decisions = graph.num_ops, len(decisions.memory_bytes)
    low, high = np.zeros(num_decisions), np.ones(num_decisions)
    low[problem.decision[np.isinf(accelerator_s)]] = 1.0
    high[problem.decision[np.isinf(host_s)]] = 0.0
    if (low > high).any():
        return float(compute_s.min(axis=1).max())  # inf: no device runs such a decision
    host_s, accelerator_s = (np.where(np.isfinite(s), s, 0.0) for s in (host_s, accelerator_s))
    ops = np.arange(num_ops)
    # The rows t[v] >= ... come first for every v alone, as of sources, and then for every edge.
    readers = np.concatenate([ops, graph.receivers])
    rows = np.arange(len(readers))
    ones, host_extra_s = np.ones(len(readers)), (host_s - accelerator_s)[readers]
    row = np.concatenate([rows, rows[num_ops:], rows])
    column = np.concatenate(
        [1 + readers, 1 + graph.senders, 1 + num_ops + problem.decision[readers]]
    )
    data = np.concatenate([-ones, ones[num_ops:], host_extra_s])
    starts = sparse.coo_array((data, (row, column)), (len(readers), 1 + num_ops + num_decisions))
    ends = sparse.hstack([sparse.coo_array(-np.ones((num_ops, 1))), sparse.eye_array(num_ops)])
    ends = sparse.hstack([ends, sparse.coo_array((num_ops, num_decisions))])
    memory_row = np.concatenate([np.zeros(1 + num_ops), -decisions.memory_bytes])[None]
    limits = np.concatenate([-accelerator_s[readers], np.zeros(num_ops), [capacity - total_bytes]])
    bounds = np.array([[0, np.inf]] * (1 + num_ops) + list(zip(low, high, strict=True)))
    upper = sparse.vstack([starts, ends, sparse.coo_array(memory_row)]).tocsr()
    return _solve_linear_program(np.eye(1, upper.shape[1])[0], upper, limits, None, None, bounds)


def _solve_linear_program(
    objective: np.ndarray,
    upper: sparse.csr_array,
    limits: np.ndarray,
    equal: sparse.csr_array | None,
    values: np.ndarray | None,
    bounds: Any,
) -> float:
    """Returns the optimum less its tolerance; inf where infeasible, 0 where HiGHS gives up."""
    solution = optimize.linprog(objective, upper, limits, equal, values, bounds, method="highs")
    if solution.status == 2:
        return np.inf
    return float(solution.fun) * (1 - _TOLERANCE) if solution.status == 0 else 0.0
