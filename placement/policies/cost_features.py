"""The costs of a problem as policies read them, padded to the size of the policy's graph."""

import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.graphs.batching import pad
from placement.instance import Instance
from placement.simulators import list_schedule, makespan, ranks
from placement.types import Array

PolicyTables = TypeVar("PolicyTables")

# Classes of operation types for which the devices' relative speeds differ.
_OP_CLASSES = (
    ("MatMul", "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence"),
    ("Convolution", "GroupConvolution", "ConvolutionBackpropData"),
)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class ObjectiveName:
    """The name of an objective, which is static under jit: the globals of a graph are arrays."""

    name: str


class CostView(NamedTuple, Generic[PolicyTables]):
    """A problem's costs and the steps of its list schedule; N, E and S are padded sizes.

    Pass it as the `globals` of the policy's graph, never in a closure: XLA would fold the
    constants. Parallel edges are merged into one with the longest delay; the other tensors arrive
    earlier.
    """

    compute_s: Array  # float32 [N, D]; inf where the device does not support the operation
    senders: Array  # int32 [E]: distinct pairs of neighbours; N for padding
    receivers: Array  # int32 [E]
    # float32 [E, D, D]: from the sender's finish to the arrival; zero for padding, the last edge
    delay_s: Array
    # S steps in the order of priority, whatever the problem's objective. Padding comes last and
    # writes nothing.
    steps: list_schedule.Steps
    num_steps: Array  # int32 []: the number of steps without padding
    is_host: Array  # bool [D]: whether a device is a host, which pays for no transfers
    objective: ObjectiveName
    policy_tables: PolicyTables  # arrays of one policy, in a type that it defines; None for others

    @property
    def simulator(self) -> makespan.Tables:
        """Gathers the tables of `makespan.latency`, for placements of N operations."""
        compute_s, delay_s = self.compute_s[self.steps.op], self.delay_s[self.steps.edges]
        kinds = np.arange(compute_s.shape[1], dtype=np.int8)  # no two devices are interchangeable
        return makespan.Tables(self.steps, compute_s, kinds, delay_s, num_steps=self.num_steps)


class CostFeatures(NamedTuple):
    """Features of operations and devices that follow from their costs; N is padded.

    Nothing here has a size or a scale that depends on the graph, so that a policy that is trained
    on some graphs and devices can place others.
    """

    unit_s: Array  # float32 []: the median operation's mean time; the unit of the other times
    optimistic_cost: Array  # float32 [N, D]: PEFT's, in units
    op: Array  # float32 [N, 8]: costs of an operation and its position in the graph
    device: Array  # float32 [D, 7]: properties of a device
    memory: Array  # float32 [N]: an operation's share of the graph's memory
    capacity: Array  # float32 [D]: over the graph's memory


def cost_view(problem: Instance, num_nodes: int, num_edges: int) -> CostView[Any]:
    """Computes the padded costs of a problem, on the host.

    Args:
      problem: the graph that the policy places, with its costs.
      num_nodes: padded number of nodes of the policy's graph.
      num_edges: its padded number of edges, greater than the number of pairs of neighbours.
    """
    graph, costs = problem.graph, problem.costs
    senders, receivers, delay_s, _ = problem.dependencies
    steps = list_schedule.steps(graph.num_ops, senders, receivers, problem.priority_order)
    # Row N of the simulator's buffers stands for no input and row N + 1 for no output, see `Steps`.
    num_steps, no_output = num_nodes + num_edges // list_schedule.WIDTH, num_nodes + 1
    inputs = np.where(steps.inputs == graph.num_ops, num_nodes, steps.inputs)
    edges = np.where(steps.edges == len(senders), num_edges - 1, steps.edges)
    padded_steps = list_schedule.Steps(
        op=pad(steps.op, num_steps, 0),
        inputs=pad(inputs, num_steps, num_nodes),
        edges=pad(edges, num_steps, num_edges - 1),
        first=pad(steps.first, num_steps, False),
        last=pad(steps.last, num_steps, False),
        output=pad(np.where(steps.last, steps.op, no_output), num_steps, no_output),
    )
    return CostView(
        compute_s=pad(np.asarray(costs.compute_s, np.float32), num_nodes, 0),
        senders=pad(senders, num_edges, num_nodes),
        receivers=pad(receivers, num_edges, num_nodes),
        delay_s=pad(delay_s, num_edges, 0.0),
        steps=padded_steps,
        num_steps=np.array(len(steps.op), np.int32),
        is_host=np.asarray(costs.accelerator) < 0,
        objective=ObjectiveName(problem.objective),
        policy_tables=None,
    )


def cost_feature_view(problem: Instance, num_nodes: int, num_edges: int) -> CostView[CostFeatures]:
    """Computes the padded costs of a problem and their features, on the host.

    Args:
      problem: the graph that the policy places, with its costs.
      num_nodes: padded number of nodes of the policy's graph.
      num_edges: its padded number of edges.
    """
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    mean_s = ranks.finite_mean(compute_s)
    unit_s = float(np.median(mean_s[mean_s > 0])) if (mean_s > 0).any() else 1.0
    optimistic_s = ranks.optimistic_cost_s(
        graph, compute_s, problem.mean_edge_delay_s, problem.topological_order
    )
    optimistic_cost = optimistic_s / unit_s
    optimistic_cost = np.where(np.isfinite(optimistic_cost), optimistic_cost, 0.0)
    memory_bytes = np.asarray(costs.memory_bytes, np.float64)
    total_bytes = memory_bytes.sum() or 1.0
    rows = (0, num_nodes - graph.num_ops)
    features = CostFeatures(
        unit_s=np.asarray(unit_s),
        optimistic_cost=np.pad(optimistic_cost, (rows, (0, 0))),
        op=np.pad(_op_features(problem, unit_s), (rows, (0, 0))),
        device=_device_features(problem, unit_s),
        memory=np.pad(memory_bytes / total_bytes, rows),
        capacity=np.asarray(costs.capacity_bytes, np.float64) / total_bytes,
    )
    features = CostFeatures(*(leaf.astype(np.float32) for leaf in features))
    return cost_view(problem, num_nodes, num_edges)._replace(policy_tables=features)


def find_fastest_device(problem: Instance) -> np.ndarray:
    """Finds the fastest of the devices that can run the most operations, int32 []."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    is_supported = np.isfinite(compute_s)
    total_s = np.where(is_supported, compute_s, 0.0).sum(axis=0)
    return np.lexsort((total_s, -is_supported.sum(axis=0)))[0].astype(np.int32)


def place_on_device(graph: jraph.GraphsTuple, device: Array, leader: Array) -> Array:
    """Places every class on a device, or on the first one that supports its leader, int32 [N].

    Args:
      graph: N nodes.
      device: int32 [].
      leader: int32 [N], the operation whose device each operation takes.
    """
    allowed = jnp.asarray(graph.nodes["allowed"])
    device = jnp.where(allowed[:, device], device, jnp.argmax(allowed, axis=1))
    return device.astype(jnp.int32)[leader]


def with_finite_costs(graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
    """Replaces infinite costs by zero, so that sums of times stay finite; the arrays are JAX's.

    Args:
      graph: its globals are a `CostView`.
    """
    graph = jax.tree.map(jnp.asarray, graph)
    costs = graph.globals
    compute_s, delay_s = (
        jnp.where(jnp.isfinite(x), x, 0.0) for x in (costs.compute_s, costs.delay_s)
    )
    return graph._replace(globals=costs._replace(compute_s=compute_s, delay_s=delay_s))


def _op_features(problem: Instance, unit_s: float) -> np.ndarray:
    """Computes the features of operations, float64 [N, 8], of order 1."""
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    mean_s = ranks.finite_mean(compute_s)
    min_s = np.where(np.isfinite(compute_s), compute_s, np.inf).min(axis=1)
    min_s = np.where(np.isfinite(min_s), min_s, 0.0)
    # The longest paths from an operation to the end, and from the start to its end.
    upward_s = problem.upward_rank
    downward_s = problem.reverse().upward_rank
    critical_path_s = float(upward_s.max()) or 1.0
    max_delay_s = np.zeros(graph.num_ops)
    np.maximum.at(max_delay_s, graph.senders, problem.mean_edge_delay_s)
    columns = (
        np.log1p(mean_s / unit_s),
        np.log1p(min_s / unit_s),
        np.log1p(max_delay_s / unit_s),
        upward_s / critical_path_s,
        downward_s / critical_path_s,
        (upward_s + downward_s - mean_s) / critical_path_s,  # 1 on a critical path
        np.log1p(np.bincount(graph.receivers, minlength=graph.num_ops)),
        np.log1p(np.bincount(graph.senders, minlength=graph.num_ops)),
    )
    return np.stack(columns, axis=1)


def _device_features(problem: Instance, unit_s: float) -> np.ndarray:
    """Computes the features of devices, float64 [D, 7].

    They are the slowness for all operations and for each class of operations, the mean latency and
    the mean transfer time of a device's links, its capacity, and whether it is a host.
    """
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    op_types = np.array(graph.op_types)
    members = [np.ones(graph.num_ops, bool), *(np.isin(op_types, types) for types in _OP_CLASSES)]
    is_link = ~np.eye(compute_s.shape[1], dtype=bool)
    latency_s = np.asarray(costs.transfer_latency_s, np.float64)
    s_per_byte = np.asarray(costs.transfer_s_per_byte, np.float64)
    mean_bytes = float(graph.edge_bytes.mean()) if graph.num_edges else 0.0
    links = [
        ranks.finite_mean(np.where(is_link, link_s, np.inf))
        for link_s in (latency_s, s_per_byte * mean_bytes)
    ]
    total_bytes = float(np.asarray(costs.memory_bytes, np.float64).sum()) or 1.0
    return np.stack(
        [
            *(_slowness(compute_s[is_member]) for is_member in members),
            *(np.log1p(link_s / unit_s) for link_s in links),
            np.minimum(1.0, np.asarray(costs.capacity_bytes, np.float64) / total_bytes),
            (np.asarray(costs.accelerator) < 0).astype(float),
        ],
        axis=1,
    )


def _slowness(compute_s: np.ndarray) -> np.ndarray:
    """Computes log(a device's total time / the fastest device's), float64 [D]; 0 if that is 0."""
    total_s = np.where(np.isfinite(compute_s), compute_s, 0.0).sum(axis=0)
    fastest_s = total_s.min()
    return np.log(total_s / fastest_s) if fastest_s > 0 else np.zeros(len(total_s))
