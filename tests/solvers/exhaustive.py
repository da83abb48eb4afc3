"""Small random problems, and their optima by trying every placement."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.types import Solution
from tests import helpers

# Operations, edges, tensors, devices: problems of `reference.random_problem` of this size share
# their compilations with these here.
SIZE = (6, 9, 6, 3)


def problems(
    objective: str, count: int, *, seed: int = 0, num_devices: int = 3, shared: bool = False
) -> Iterator[Problem]:
    """Yields random problems that share a few compilations of the simulator, whatever the seed.

    Half of them have co-located operations, half of them limited memories, a third equal
    accelerators, and under `max_load` a third a backward pass. Where `shared`, devices may be parts
    of one accelerator.
    """
    rng, size = np.random.default_rng(seed), SIZE[:3]
    base = helpers.random_dag_of_size(np.random.default_rng([*size, num_devices]), *size)
    for number in range(count):
        graph = helpers.rewired(rng, base, colocated=0.3 * (number % 2))
        costs = helpers.random_costs(
            rng,
            graph,
            num_devices,
            unsupported=rng.choice([0, 0, 0.1]),
            unlinked=rng.choice([0, 0, 0.1]),
            limited=0.6 * (number % 4 >= 2),
            transfer=rng.random() < 0.7,
            accelerator=helpers.random_accelerators(rng, num_devices, shared=shared),
        )
        if number % 3 == 0:  # all accelerators cost what the first one costs, and links nothing
            accelerators = np.flatnonzero(costs.accelerator >= 0)
            costs.compute_s[:, accelerators] = costs.compute_s[:, accelerators[:1]]
            costs.capacity_bytes[accelerators] = costs.capacity_bytes[accelerators[:1]]
            nothing = np.zeros_like(costs.transfer_s_per_byte)
            costs = costs._replace(transfer_latency_s=nothing, transfer_s_per_byte=nothing)
        if number % 3 == 2 and objective == "max_load":
            rank = np.argsort(dag.topological_order(graph))
            backward = rank >= rng.integers(2, graph.num_ops - 1)
            graph = dataclasses.replace(graph, backward=backward)
        yield helpers.as_problem(graph, costs, objective)


@functools.cache
def six(objective: str) -> list[tuple[Problem, np.ndarray]]:
    """Returns six problems, and the value of every placement, as in `helpers.every_placement`."""
    pairs = []
    for problem in problems(objective, 6, seed=5, shared=objective in ("makespan", "subgraph")):
        # The slowest device cannot hold everything, because a simulation without memories would
        # be another compilation. The other limits are finite too.
        capacity = np.minimum(problem.costs.capacity_bytes, np.float32(2**30))
        seconds = np.where(np.isfinite(problem.costs.compute_s), problem.costs.compute_s, 99)
        same = problem.shares_memory[seconds.sum(axis=0).argmax()]
        capacity[same] = np.minimum(capacity[same], problem.costs.memory_bytes.sum() - 1)
        problem = problem._replace(costs=problem.costs._replace(capacity_bytes=capacity))
        pairs.append((problem, np.asarray(problem.evaluate(helpers.every_placement(problem)))))
    return pairs


def returns_to_no_device(problem: Problem) -> np.ndarray:
    """Returns bool [D**N]: whether no path of a pass leaves a device and returns to it."""
    backward = problem.graph.backward
    same_pass = backward[:, None] == backward
    reaches = (dag.reachability(problem.graph) & same_pass).astype(int)
    devices = problem.expand(helpers.every_placement(problem))
    contiguous = np.ones(len(devices), bool)
    for device in range(len(problem.devices)):
        on = devices == device
        contiguous &= ~(~on & (on @ reaches > 0) & (on @ reaches.T > 0)).any(axis=1)
    return contiguous


def follows_device_order(problem: Problem) -> np.ndarray:
    """Returns bool [D**N]: whether some order of the devices exists that no tensor of the forward
    pass goes down, and those of the backward pass either all go up or all go down."""
    graph = problem.graph
    is_inner = graph.backward[graph.senders] == graph.backward[graph.receivers]
    senders, receivers = graph.senders[is_inner], graph.receivers[is_inner]
    is_backward = graph.backward[senders]
    devices = problem.expand(helpers.every_placement(problem))
    follows = np.zeros(len(devices), bool)
    for rank in map(np.array, itertools.permutations(range(len(problem.devices)))):
        step = rank[devices[:, receivers]] - rank[devices[:, senders]]
        up, down = (step[:, ~is_backward] >= 0).all(axis=1), step[:, is_backward]
        follows |= up & ((down <= 0).all(axis=1) | (down >= 0).all(axis=1))
    return follows


def admitted(method: str, solution: Solution, problem: Problem, values_s: np.ndarray) -> np.ndarray:
    """Returns the values float [D**N] of all placements, inf of those outside a proof's scope."""
    if solution.scope != "contiguous":
        return values_s
    admits = returns_to_no_device if method == "milp" else follows_device_order
    return np.where(admits(problem), values_s, np.inf)


def optimum(problem: Problem) -> float:
    """Returns the least value of all placements, inf where none is feasible."""
    return float(np.min(problem.evaluate(helpers.every_placement(problem))))


def check(solution: Solution, best_s: float) -> None:
    """Checks that a solution is the proven optimum, or that infeasibility is proven."""
    if np.isinf(best_s):
        assert solution.status == "infeasible"
    else:
        assert solution.status == "optimal"
        np.testing.assert_allclose(solution.value_s, best_s, rtol=1e-6)
        assert solution.bound_s <= solution.value_s
