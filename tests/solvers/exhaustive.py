"""Small random problems, and their optima by trying every placement."""

from collections.abc import Iterator

import numpy as np

from placement.instance import Instance
from placement.solvers import starts
from placement.types import Solution
from tests import helpers

# Operations, edges, tensors, devices: problems of `reference.random_problem` of this size share
# their compilations with these here.
SIZE = (6, 9, 6, 3)
_PLACEMENTS = {num: helpers.all_placements(SIZE[0], num) for num in (3, 4)}


def problems(
    objective: str, count: int, *, seed: int = 0, num_devices: int = 3, shared: bool = False
) -> Iterator[Instance]:
    """Yields random problems that share a few compilations of the simulator, whatever the seed.

    Half of them have co-located operations, half of them limited memories. Where `shared`, devices
    may be parts of one accelerator; a third of the problems has equal accelerators.
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
        yield helpers.as_problem(graph, costs, objective)


def optimum(problem: Instance, *, contiguous: bool = False) -> float:
    """Returns the least value of all placements, inf where none is feasible."""
    placements = _PLACEMENTS[len(problem.devices)]
    values = np.asarray(problem.evaluate(placements))
    if contiguous:
        reach = starts.reachability_within_passes(problem.graph)
        for row in np.argsort(values, kind="stable"):
            if starts.is_contiguous(placements[row], reach):
                return float(values[row])
    return float(values.min())


def check(problem: Instance, found: Solution, best_s: float) -> None:
    """Checks that a solution is the proven optimum, or that infeasibility is proven."""
    if np.isinf(best_s):
        assert found.status == "infeasible"
    else:
        assert found.status == "optimal"
        np.testing.assert_allclose(found.value_s, best_s, rtol=1e-6)
        assert found.bound_s <= found.value_s
