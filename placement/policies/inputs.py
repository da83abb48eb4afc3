"""The inputs of policies: everything that a policy may read of a problem.

A policy reads a padded `jraph.GraphsTuple` of N nodes, E edges and D devices, made by
`read_operations`. A node is an operation, or a group of operations if the graph is large:

    nodes     {'features': float32 [N, F]   types, shapes and positions (`graphs.features`)
               'mask': bool [N]             nodes that decide: not padding, not followers
               'allowed': bool [N, D]}      devices that can run the node
    edges     {'mask': bool [E]}            padding edges join the last padding node to itself
    senders, receivers   int32 [E]          sorted by sender, then receiver
    globals   a `CostView`                  costs in seconds, and `CostFeatures` without units

Of co-located operations only the first one decides. The others are followers: they have nodes, but
the evaluated placement has them on the device of the first one (`PolicyInput.node`).
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.graphs import batching
from placement.graphs.batching import pad, to_graphs_tuple
from placement.graphs.features import DEFAULT_BLOCKS, node_features
from placement.policies import groups
from placement.problem import Problem
from placement.simulators import list_schedule, makespan, ranks
from placement.types import Array

PolicyTables = TypeVar("PolicyTables")
LARGEST = 16_000  # operations; a policy places groups of the operations of a larger graph
NUM_GROUPS = 64  # of these groups: as many as a search of a minute learns to place
# The devices' relative speeds differ between these classes of operations.
_MATRIX_TYPES = "MatMul", "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence"
_CONVOLUTION_TYPES = "Convolution", "GroupConvolution", "ConvolutionBackpropData"


class CostView(NamedTuple, Generic[PolicyTables]):
    """A problem's costs and the steps of its list schedule; N, E and S are padded sizes.

    Pass it as the globals of the policy's graph, never in a closure: XLA would fold the constants.
    Parallel edges are merged into one with the longest delay; the other tensors arrive earlier.
    """

    compute_s: Array  # float32 [N, D]; inf where the device does not support the operation
    senders: Array  # int32 [E]: distinct pairs of neighbours; N for padding
    receivers: Array  # int32 [E]
    delay_s: Array  # float32 [E, D, D]: from the sender's finish to the arrival; 0 for padding
    # S steps in the order of priority, whatever the objective; padding is last and writes nothing.
    steps: list_schedule.Steps
    num_steps: Array  # int32 []: the number of steps without padding
    policy_tables: PolicyTables  # `CostFeatures`, or the arrays of a policy with another view

    @property
    def simulator(self) -> makespan.Tables:
        """The tables of `makespan.latency`, for placements of N operations."""
        compute_s, delay_s = self.compute_s[self.steps.op], self.delay_s[self.steps.edges]
        kinds = np.arange(compute_s.shape[1], dtype=np.int8)  # no two devices are interchangeable
        return makespan.Tables(self.steps, compute_s, kinds, delay_s, num_steps=self.num_steps)


class CostFeatures(NamedTuple):
    """Features of operations and devices that follow from their costs; N is padded.

    No size or scale depends on the graph, so that a trained policy can place other graphs.
    """

    unit_s: Array  # float32 []: the median operation's mean time; the unit of the other times
    optimistic_cost: Array  # float32 [N, D]: the least time from a start there to the end (PEFT's)
    op: Array  # float32 [N, 8]: costs of an operation and its position in the graph
    device: Array  # float32 [D, 7]: properties of a device
    memory: Array  # float32 [N]: an operation's share of the graph's memory
    capacity: Array  # float32 [D]: over the graph's memory


# Makes a graph's `CostView` from the problem, for padded numbers of nodes and edges.
View = Callable[[Problem, int, int], CostView[Any]]


class PolicyInput(NamedTuple):
    """A problem as a policy reads it."""

    graph: jraph.GraphsTuple
    node: np.ndarray  # int32 [N]: the node whose device each of the problem's operations takes


def read_operations(
    problem: Problem,
    features: tuple[str, ...] = DEFAULT_BLOCKS,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> PolicyInput:
    """Reads a node for every operation, with features and costs: the normal case.

    Args:
      problem: the problem to place; more than `LARGEST` operations are merged into groups first.
      features: blocks of `placement.graphs.features.BLOCKS`; () for none.
      num_nodes: padded number of nodes, if nothing is merged; None: that of a bucket.
      num_edges: padded number of edges, likewise.
    """
    if problem.graph.num_ops > LARGEST and not problem.is_colocated:
        problem, node = groups.merge_intervals(problem, NUM_GROUPS)
        return read_operations(problem, features)._replace(node=node)
    return read(problem, cost_feature_view, num_nodes, num_edges, features)


def read(
    problem: Problem,
    view: View | None,
    num_nodes: int | None = None,
    num_edges: int | None = None,
    features: tuple[str, ...] = (),
) -> PolicyInput:
    """Reads a node for every operation of a graph of any size, as `read_operations` does.

    Args:
      problem, num_nodes, num_edges, features: as of `read_operations`.
      view: makes the globals, such as `cost_view` with a policy's tables; None: they are None.
    """
    graph, num_ops = problem.graph, problem.graph.num_ops
    columns = node_features(graph, features) if features else np.zeros((num_ops, 0))
    sizes = {"num_nodes": num_nodes, "num_edges": num_edges}
    padded = to_graphs_tuple(graph.senders, graph.receivers, columns, problem.allowed, **sizes)
    node = find_leaders(problem, num_ops)
    padded.nodes["mask"][:num_ops] = node == np.arange(num_ops)
    if view is not None:
        costs = view(problem, len(padded.nodes["mask"]), len(padded.senders))
        padded = padded._replace(globals=costs)
    return PolicyInput(jax.device_put(padded), node)


def find_leaders(problem: Problem, num_nodes: int) -> np.ndarray:
    """Returns int32 [num_nodes]: the first operation co-located with each; padding leads itself."""
    leaders = np.arange(num_nodes, dtype=np.int32)
    leaders[: problem.graph.num_ops] = problem.decisions.first_ops[problem.decision]
    return leaders


def cost_view(problem: Problem, num_nodes: int, num_edges: int) -> CostView[Any]:
    """Computes the padded costs of a problem on the host, without a policy's tables."""
    graph, costs = problem.graph, problem.costs
    senders, receivers, delay_s, _ = problem.dependencies
    steps = list_schedule.steps(graph.num_ops, senders, receivers, problem.priority_order)
    num_steps = num_nodes + num_edges // list_schedule.WIDTH
    sizes = batching.Sizes(graph.num_ops, num_nodes, num_edges, num_steps)
    return CostView(
        compute_s=pad(np.asarray(costs.compute_s, np.float32), num_nodes, 0),
        senders=pad(senders, num_edges, num_nodes),
        receivers=pad(receivers, num_edges, num_nodes),
        delay_s=pad(delay_s, num_edges, 0.0),
        steps=list_schedule.pad_ops(steps, sizes),
        num_steps=np.array(len(steps.op), np.int32),
        policy_tables=None,
    )


def cost_feature_view(problem: Problem, num_nodes: int, num_edges: int) -> CostView[CostFeatures]:
    """Computes the padded costs of a problem and their features, on the host."""
    graph, costs = problem.graph, problem.costs
    compute_s, memory_bytes, capacity_bytes, latency_s, s_per_byte = (
        np.asarray(array, np.float64)
        for array in (
            *(costs.compute_s, costs.memory_bytes, costs.capacity_bytes),
            *(costs.transfer_latency_s, costs.transfer_s_per_byte),
        )
    )
    is_supported = np.isfinite(compute_s)
    finite_s = np.where(is_supported, compute_s, 0.0)
    mean_s = ranks.finite_mean(compute_s)
    unit_s = float(np.median(mean_s[mean_s > 0])) if (mean_s > 0).any() else 1.0
    total_bytes = memory_bytes.sum() or 1.0

    min_s = np.where(is_supported.any(axis=1), compute_s.min(axis=1), 0.0)
    # The longest paths from an operation to the end, and from the start to its end.
    upward_s, downward_s = problem.upward_rank, problem.reverse().upward_rank
    critical_path_s = float(upward_s.max()) or 1.0
    max_delay_s = np.zeros(graph.num_ops)
    np.maximum.at(max_delay_s, graph.senders, problem.mean_edge_delay_s)
    op_columns = (
        np.log1p(mean_s / unit_s),
        np.log1p(min_s / unit_s),
        np.log1p(max_delay_s / unit_s),
        upward_s / critical_path_s,
        downward_s / critical_path_s,
        (upward_s + downward_s - mean_s) / critical_path_s,  # 1 on a critical path
        np.log1p(np.bincount(graph.receivers, minlength=graph.num_ops)),
        np.log1p(np.bincount(graph.senders, minlength=graph.num_ops)),
    )

    def slowness(is_member: np.ndarray) -> np.ndarray:
        """Computes log(a device's total time / the fastest device's), or 0 without operations."""
        total_s = finite_s[is_member].sum(axis=0)
        return np.log(total_s / total_s.min()) if total_s.min() > 0 else 0 * total_s

    op_types, is_link = np.array(graph.op_types), ~np.eye(compute_s.shape[1], dtype=bool)
    mean_bytes = float(graph.edge_bytes.mean()) if graph.num_edges else 0.0
    device_columns = (
        slowness(np.ones(graph.num_ops, bool)),
        *(slowness(np.isin(op_types, types)) for types in (_MATRIX_TYPES, _CONVOLUTION_TYPES)),
        *(
            np.log1p(ranks.finite_mean(np.where(is_link, link_s, np.inf)) / unit_s)
            for link_s in (latency_s, s_per_byte * mean_bytes)
        ),
        np.minimum(1.0, capacity_bytes / total_bytes),
        (np.asarray(costs.accelerator) < 0).astype(float),  # whether it is a host
    )
    optimistic_cost = ranks.optimistic_cost_s(
        graph, compute_s, problem.mean_edge_delay_s, problem.topological_order
    )
    optimistic_cost = np.where(np.isfinite(optimistic_cost), optimistic_cost / unit_s, 0.0)
    features = CostFeatures(
        unit_s=np.asarray(unit_s),
        optimistic_cost=pad(optimistic_cost, num_nodes, 0),
        op=pad(np.stack(op_columns, axis=1), num_nodes, 0),
        device=np.stack(device_columns, axis=1),
        memory=pad(memory_bytes / total_bytes, num_nodes, 0),
        capacity=capacity_bytes / total_bytes,
    )
    features = CostFeatures(*(leaf.astype(np.float32) for leaf in features))
    return cost_view(problem, num_nodes, num_edges)._replace(policy_tables=features)


def with_finite_costs(graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
    """Replaces infinite costs by zero, so that sums of times stay finite; the arrays are JAX's."""
    graph = jax.tree.map(jnp.asarray, graph)
    costs = graph.globals
    compute_s, delay_s = (
        jnp.where(jnp.isfinite(x), x, 0.0) for x in (costs.compute_s, costs.delay_s)
    )
    return graph._replace(globals=costs._replace(compute_s=compute_s, delay_s=delay_s))
