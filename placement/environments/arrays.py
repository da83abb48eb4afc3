"""The arrays of a problem that environments and their policies read."""

from typing import Any, NamedTuple

import jax
import jraph
import numpy as np

from placement import simulators
from placement.errors import UserError
from placement.graphs import batching, features
from placement.instance import Instance
from placement.policies.cost_features import ObjectiveName
from placement.types import Array


class ProblemArrays(NamedTuple):
    """A problem of N operations and E pairs of neighbours, both padded, on D devices: a pytree."""

    graph: jraph.GraphsTuple  # see `placement.graphs.batching`
    tables: Any  # `Instance.padded_tables`
    compute_s: Array  # float32 [N, D]; inf where an operation is not allowed, zero for padding
    delay_s: Array  # float32 [E, D, D]: of the graph's edges; zero for padding
    order: Array  # int32 [N]: the operations in order of priority; 0 for padding
    representative: Array  # int32 [N]: the first operation co-located with each
    num_ops: Array  # int32 []: without padding
    single_devices: Array  # int32 [D, N]: all operations on each device, as far as it can run them
    single_s: Array  # float32 [D]: the values of these placements; inf if one is infeasible
    objective: ObjectiveName

    @property
    def unit_s(self) -> Array:
        """float32 []: the value of the best single device, the unit of rewards."""
        return self.single_s.min()

    def evaluate(self, placement: Array) -> tuple[Array, Array]:
        """Evaluates a placement int32 [N].

        Returns:
          float32 []: the value in units, increased by the share by which memory is exceeded.
          bool []: whether the placement is feasible.
        """
        simulate = simulators.get_objective(self.objective.name).simulate
        outcome = simulate(self.tables, placement[None])
        return outcome.penalised_s()[0] / self.unit_s, outcome.feasible[0]


def make_arrays(problem: Instance) -> ProblemArrays:
    """Makes the arrays of a problem.

    Problems with equal numbers of devices have arrays of equal shapes if their operations, edges
    and kinds of limits are as `Instance.padded_tables` says. `jax.tree.map` can stack them.

    Raises:
      UserError: no single device can run the problem, or as `Instance.padded_tables`.
    """
    single_s = np.asarray(problem.evaluate(problem.single_devices))
    if not np.isfinite(single_s).any():
        raise UserError(
            "an environment needs a device that can run the whole problem, as the unit of its "
            f"rewards; none of {', '.join(problem.devices)} can: give a device with more memory"
        )
    graph = batching.to_graphs_tuple(
        problem.graph.senders,
        problem.graph.receivers,
        features.node_features(problem.graph),
        problem.allowed,
    )
    num_ops, num_nodes = problem.graph.num_ops, problem.num_padded_ops
    padding = np.arange(num_ops, num_nodes)
    singles = np.pad(problem.single_devices, ((0, 0), (0, len(padding))))
    arrays = ProblemArrays(
        graph=graph,
        tables=problem.padded_tables,
        compute_s=batching.pad(problem.allowed_compute_s.astype(np.float32), num_nodes, 0.0),
        delay_s=batching.pad(problem.dependencies.delay_s, len(graph.senders), 0.0),
        order=batching.pad(problem.priority_order, num_nodes, 0),
        representative=np.concatenate([problem.leaders, padding]).astype(np.int32),
        num_ops=np.array(num_ops, np.int32),
        single_devices=singles,
        single_s=single_s,
        objective=ObjectiveName(problem.objective),
    )
    return jax.device_put(arrays)
