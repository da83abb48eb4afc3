"""The costs of a problem as policies read them, padded to the size of the policy's graph."""

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from placement.graphs.batching import pad
from placement.instance import Instance
from placement.simulators import makespan, schedule
from placement.types import Array

PolicyTables = TypeVar("PolicyTables")


class CostView(NamedTuple, Generic[PolicyTables]):
    """A problem's costs and the steps of its list schedule; N, E and S are padded sizes.

    Pass it as the `globals` of the policy's graph, never in a closure: XLA folds constants.
    Parallel edges are merged into one with the longest delay; earlier tensors delay nothing.
    """

    compute_s: Array  # float32 [N, D]; inf where the device does not support the operation
    senders: Array  # int32 [E]: of the distinct pairs of neighbours; N for padding
    receivers: Array  # int32 [E]
    delay_s: Array  # float32 [E, D, D]: from sender's end to arrival; the last is padding: zero
    # S steps in priority order, whatever the problem's objective. Padding comes last and writes
    # nothing.
    steps: schedule.Steps
    num_steps: Array  # int32 []: the number of steps without padding
    own: PolicyTables  # tables of one policy, of its own type; None for other policies

    @property
    def simulator(self) -> makespan.Tables:
        """Gathers what `makespan.latency` reads, for placements of N operations."""
        compute_s, delay_s = self.compute_s[self.steps.op], self.delay_s[self.steps.edges]
        kinds = np.arange(compute_s.shape[1], dtype=np.int8)  # no two devices are interchangeable
        return makespan.Tables(self.steps, compute_s, kinds, delay_s)


def cost_view(problem: Instance, num_nodes: int, num_edges: int) -> CostView[Any]:
    """Computes the padded costs of a problem, on the host.

    Args:
      problem: the graph that the policy places, with its costs.
      num_nodes: padded number of nodes of the policy's graph.
      num_edges: its padded number of edges, more than there are pairs of neighbours.
    """
    graph, costs = problem.graph, problem.costs
    senders, receivers, delay_s, _ = problem.dependencies
    steps = schedule.steps(graph.num_ops, senders, receivers, problem.priority_order)
    return CostView(
        compute_s=pad(np.asarray(costs.compute_s, np.float32), num_nodes, 0),
        senders=pad(senders, num_edges, num_nodes),
        receivers=pad(receivers, num_edges, num_nodes),
        delay_s=pad(delay_s, num_edges, 0.0),
        steps=_padded_steps(steps, (graph.num_ops, len(senders)), (num_nodes, num_edges)),
        num_steps=np.array(len(steps.op), np.int32),
        own=None,
    )


def _padded_steps(
    steps: schedule.Steps, size: tuple[int, int], padded: tuple[int, int]
) -> schedule.Steps:
    """Pads the steps of a list schedule from `size` to `padded` (operations, edges)."""
    (num_ops, num_pairs), (num_nodes, num_edges) = size, padded
    length, nothing = num_nodes + num_edges // schedule.WIDTH, num_nodes + 1
    inputs = np.where(steps.inputs == num_ops, num_nodes, steps.inputs)
    edges = np.where(steps.edges == num_pairs, num_edges - 1, steps.edges)
    return schedule.Steps(
        op=pad(steps.op, length, 0),
        inputs=pad(inputs, length, num_nodes),
        edges=pad(edges, length, num_edges - 1),
        first=pad(steps.first, length, False),
        last=pad(steps.last, length, False),
        output=pad(np.where(steps.last, steps.op, nothing), length, nothing),
    )
