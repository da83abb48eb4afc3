"""Lower bounds of all feasible placements, by counting and linear programs: under a second.

`max_load` is the larger of

    min T  such that  sum_g y[c, g] = 1,  sum_c compute_s[c, g] y[c, g] <= T |g|,
                      sum_c memory_bytes[c] y[c, g] <= memory of g,  y >= 0

over groups g of equal devices, the relaxation of assignment without communication, and the
pigeonhole bound: of j heavy classes some device takes more than others leave to it. With
P[d, k] the seconds of the k lightest of them on device d, a load below T leaves room for as many as
have P[d, k] < T, so that some load is at least

    the j-th smallest of all P[d, k].

`subgraph` is the longest path with every operation at its fastest; where the accelerators' memories
cannot hold everything, with the least that the host has to take, in shares h[c] of classes:

    min T  such that  T >= t[v] >= t[u] + (1 - h) * fastest accelerator + h * fastest host,
                      sum_c memory_bytes[c] (1 - h[c]) <= memory of all accelerators,  0 <= h <= 1.

Neither charges communication, which a placement avoids on a device that takes everything.
"""

from typing import Any, NamedTuple

import chex
import numpy as np
from scipy import optimize, sparse

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers import base

_TOLERANCE = 1e-7  # relative: of linear programs
_HEAVY = 16  # classes a device: with more, the relaxation is as good


class Pigeonhole(NamedTuple):
    """Of `members` some device d takes more than `room[d]`, and is loaded `bound_s` at least."""

    bound_s: float
    members: np.ndarray  # int [J]: classes
    room: np.ndarray  # int [D]


def max_load(problem: Instance) -> float:
    """Bounds the objective `max_load` from below; inf where no placement can be feasible."""
    return max(_relaxed_load(problem), pigeonhole(problem.classes.compute_s).bound_s)


def subgraph(problem: Instance) -> float:
    """Bounds the objective `subgraph` from below; inf where no placement can be feasible."""
    classes, memory = problem.classes, problem.memory_limits
    is_host = np.asarray(problem.costs.accelerator) < 0
    free = is_host & ~memory.devices.any(axis=0)
    limited = not is_host.all() and memory.devices[:, ~is_host].any(axis=0).all()
    if limited and free.any():
        capacity = memory.capacity_bytes[memory.devices[:, ~is_host].any(axis=1)].sum()
        if classes.memory_bytes.sum() > capacity:
            return _shared_path(problem, capacity)
    graph, fastest_s = problem.graph, problem.allowed_compute_s.min(axis=1)
    return float(dag.longest_paths(graph.senders, graph.receivers, fastest_s).max())


def pigeonhole(compute_s: np.ndarray) -> Pigeonhole:
    """Returns the best pigeonhole bound of classes that compute for float64 [C, D]."""
    chex.assert_rank(compute_s, 2)
    chex.assert_type(compute_s, float)
    num_classes, num_devices = compute_s.shape
    heaviest = np.argsort(-compute_s.min(axis=1), kind="stable")
    best = Pigeonhole(0.0, heaviest[:1], np.zeros(num_devices, int))
    for count in range(1, min(num_classes, _HEAVY * num_devices + 1) + 1):
        members = heaviest[:count]
        loads = np.sort(compute_s[members], axis=0).cumsum(axis=0)
        bound_s = float(np.partition(loads.ravel(), count - 1)[count - 1])
        if bound_s > best.bound_s:
            best = Pigeonhole(bound_s, members, (loads < bound_s).sum(axis=0))
    return best


def _relaxed_load(problem: Instance) -> float:
    classes = problem.classes
    capacity = np.asarray(problem.costs.capacity_bytes, np.float64)
    equal = base.equal_devices(np.concatenate([capacity[None], classes.compute_s]))
    first, group, size = np.unique(equal, return_inverse=True, return_counts=True)
    compute_s, allowed = classes.compute_s[:, first], classes.allowed[:, first]
    number, column = np.nonzero(allowed)
    shares = np.arange(len(number))
    shape = (len(size), len(shares))
    seconds = sparse.coo_array((compute_s[allowed], (column, shares)), shape)
    room = base.group_capacity_bytes(problem, group)
    limited = np.isfinite(room)
    bytes_ = sparse.coo_array((classes.memory_bytes[number], (column, shares)), shape).tocsr()
    upper = sparse.block_array(
        [
            [sparse.coo_array(-size[:, None].astype(float)), seconds],
            [sparse.coo_array((int(limited.sum()), 1)), bytes_[limited]],
        ]
    )
    ones = np.ones(len(shares))
    whole = sparse.coo_array((ones, (number, shares + 1)), (len(compute_s), len(shares) + 1))
    return _least(
        np.eye(1, len(shares) + 1)[0],
        upper.tocsr(),
        np.concatenate([np.zeros(len(size)), room[limited]]),
        whole.tocsr(),
        np.ones(len(compute_s)),
        (0, None),
    )


def _shared_path(problem: Instance, capacity: float) -> float:
    """Bounds the longest path with shares of classes on hosts; variables are T, t [N], h [C]."""
    graph, is_host = problem.graph, np.asarray(problem.costs.accelerator) < 0
    classes, compute_s = problem.classes, problem.allowed_compute_s
    host_s = compute_s[:, is_host].min(axis=1)
    own_s = compute_s[:, ~is_host].min(axis=1)
    count, num_classes = graph.num_ops, len(classes.memory_bytes)
    low, high = np.zeros(num_classes), np.ones(num_classes)
    low[classes.ids[np.isinf(own_s)]] = 1.0
    high[classes.ids[np.isinf(host_s)]] = 0.0
    if (low > high).any():
        return float(compute_s.min(axis=1).max())  # inf: no device runs such a class
    host_s, own_s = (np.where(np.isfinite(s), s, 0.0) for s in (host_s, own_s))
    ops = np.arange(count)
    after = np.concatenate([ops, graph.receivers])  # t[v] >= ..., of sources too
    rows = np.arange(len(after))
    weight = sparse.coo_array(
        (
            np.concatenate(
                [-np.ones(len(after)), np.ones(graph.num_edges), (host_s - own_s)[after]]
            ),
            (
                np.concatenate([rows, rows[count:], rows]),
                np.concatenate([1 + after, 1 + graph.senders, 1 + count + classes.ids[after]]),
            ),
        ),
        (len(after), 1 + count + num_classes),
    )
    last = sparse.hstack([sparse.coo_array(-np.ones((count, 1))), sparse.eye_array(count)])
    last = sparse.hstack([last, sparse.coo_array((count, num_classes))])
    held = np.concatenate([np.zeros(1 + count), -classes.memory_bytes])[None]
    total = classes.memory_bytes.sum()
    limits = np.concatenate([-own_s[after], np.zeros(count), [capacity - total]])
    bounds = np.array([[0, np.inf]] * (1 + count) + list(zip(low, high, strict=True)))
    upper = sparse.vstack([weight, last, sparse.coo_array(held)]).tocsr()
    return _least(np.eye(1, upper.shape[1])[0], upper, limits, None, None, bounds)


def _least(
    objective: np.ndarray,
    upper: sparse.csr_array,
    limits: np.ndarray,
    equal: sparse.csr_array | None,
    values: np.ndarray | None,
    bounds: Any,
) -> float:
    """Solves a linear program: its optimum, a little below; 0 where the solver gives up."""
    solution = optimize.linprog(objective, upper, limits, equal, values, bounds, method="highs")
    if solution.status == 2:
        return np.inf
    return float(solution.fun) * (1 - _TOLERANCE) if solution.status == 0 else 0.0
