"""Readers of the policies that place groups of operations or decisions, or step through the nodes.

The other policies read operations, see `placement.policies.inputs`.
"""

import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.graphs import coarsen
from placement.graphs.batching import to_graphs_tuple
from placement.graphs.features import DEFAULT_BLOCKS, node_features
from placement.policies import groups, inputs
from placement.policies.inputs import PolicyInput
from placement.problem import Problem
from placement.types import Array


def read_decisions(problem: Problem, features: tuple[str, ...] = DEFAULT_BLOCKS) -> PolicyInput:
    """Reads a node for every decision, with the features of its first operation.

    The graph of the decisions may have cycles, so it is for policies that follow no paths and read
    no costs. Without co-location the nodes are those of `inputs.read_operations`.
    """
    if not problem.is_colocated:
        return inputs.read_operations(problem, features)
    graph, decision, decisions = problem.graph, problem.decision, problem.decisions
    senders, receivers = decision[graph.senders], decision[graph.receivers]
    is_outer = senders != receivers
    padded = to_graphs_tuple(
        senders[is_outer],
        receivers[is_outer],
        node_features(graph, features)[decisions.first_ops],
        decisions.allowed,
    )
    return PolicyInput(jax.device_put(padded), decision)


def read_sole_consumer_groups(
    problem: Problem, features: tuple[str, ...] = DEFAULT_BLOCKS
) -> PolicyInput:
    """Reads a node for every group of ColocRL's heuristic, see `coarsen.label_sole_consumer_trees`.

    With co-location, the heuristic works on the graph of the decisions' first operations: a
    decision joins another one if its first operation serves only that of the other. In a training
    graph these are the operations of the forward pass.
    """
    if problem.is_colocated:
        edges = groups.edges_between_first_ops(problem)
        trees = coarsen.label_sole_consumer_trees(
            problem.num_decisions, edges.senders, edges.receivers
        )
        return read_decisions(groups.colocate(problem, trees), features)
    graph = problem.graph
    trees = coarsen.label_sole_consumer_trees(graph.num_ops, graph.senders, graph.receivers)
    merged, node = groups.merge(problem, coarsen.merge(graph, trees))
    return inputs.read(merged, None, features=features)._replace(node=node)


def read_cost_groups(problem: Problem, view: inputs.View, num_groups: int) -> PolicyInput:
    """Reads a node without features for every operation or group of operations.

    The graph is padded by one node, not to a bucket: policies that read it take steps for every
    node, and those of padding would be evaluated and change nothing.

    Args:
      problem: N operations.
      view: makes the globals of the graph, from the costs of the operations or groups.
      num_groups: the largest number of groups, of decisions with co-location; 0: no groups.
    """
    node = None
    if 0 < num_groups < problem.num_decisions:
        if problem.is_colocated:
            problem = groups.colocate_intervals(problem, num_groups)
        else:
            problem, node = groups.merge_intervals(problem, num_groups)
    result = inputs.read(problem, view, num_nodes=problem.graph.num_ops + 1)
    return result if node is None else result._replace(node=node)


def find_fastest_device(problem: Problem) -> np.ndarray:
    """Finds the fastest of the devices that can run the most operations, int32 []."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    is_supported = np.isfinite(compute_s)
    total_s = np.where(is_supported, compute_s, 0.0).sum(axis=0)
    return np.lexsort((total_s, -is_supported.sum(axis=0)))[0].astype(np.int32)


def place_on_device(graph: jraph.GraphsTuple, device: Array, leader: Array) -> Array:
    """Places every node on a device, or on the first one that supports its leader, int32 [N]."""
    allowed = jnp.asarray(graph.nodes["allowed"])
    device = jnp.where(allowed[:, device], device, jnp.argmax(allowed, axis=1))
    return device.astype(jnp.int32)[leader]
