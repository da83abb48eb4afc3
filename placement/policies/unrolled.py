"""The simulator's schedule for policies that follow it: at a size that the bucket alone decides."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from placement.simulators import makespan, schedule
from placement.types import Array, Problem


class Unrolled(NamedTuple):
    """A problem's operations in an order, step by step; N operations and E edges, padded.

    Parallel edges are one, of their longest delay: tensors that arrive earlier hold up nothing.
    """

    simulator: makespan.Tables  # of S steps; the steps of padding come last and write nothing
    num_steps: Array  # int32 []: those that are no padding
    senders: Array  # int32 [E]: of the distinct pairs of neighbours; N for padding
    receivers: Array  # int32 [E]
    delay_s: Array  # float32 [E, D, D]: zero for padding


def unroll(problem: Problem, order: np.ndarray, num_nodes: int, num_edges: int) -> Unrolled:
    """Unrolls a problem on the host.

    Args:
      problem: of the graph that the policy places.
      order: int32, a topological order of its operations.
      num_nodes: padded number of nodes of the policy's graph.
      num_edges: its padded number of edges.
    """
    graph, costs = problem.graph, problem.costs
    ends = np.stack([graph.senders, graph.receivers], axis=1)
    pairs, number = np.unique(ends, axis=0, return_inverse=True)
    pairs = pairs.astype(np.int32).reshape(-1, 2)
    each_s = makespan.edge_delay_s(graph, costs)
    delay_s = np.zeros((num_edges + 1, *each_s.shape[1:]), np.float32)
    np.maximum.at(delay_s, number.reshape(-1), each_s)
    simple = dataclasses.replace(graph, senders=pairs[:, 0], receivers=pairs[:, 1])
    steps = schedule.steps(simple, order)
    edges = np.where(steps.edges == len(pairs), num_edges, steps.edges)
    found = makespan.Tables(
        steps._replace(
            inputs=np.where(steps.inputs == graph.num_ops, num_nodes, steps.inputs),
            edges=edges,
            output=np.where(steps.last, steps.op, num_nodes + 1),
        ),
        np.asarray(costs.compute_s, np.float32)[steps.op],
        delay_s[edges],
    )
    num_steps = len(steps.op)
    longer = num_nodes + num_edges // schedule.WIDTH - num_steps
    padded = jax.tree.map(
        lambda leaf: np.pad(leaf, [(0, longer)] + [(0, 0)] * (leaf.ndim - 1)), found
    )
    missing = (0, num_edges - len(pairs))
    return Unrolled(
        simulator=padded,
        num_steps=np.array(num_steps, np.int32),
        senders=np.pad(pairs[:, 0], missing, constant_values=num_nodes),
        receivers=np.pad(pairs[:, 1], missing, constant_values=num_nodes),
        delay_s=delay_s[:-1],
    )
