"""Problems with random costs that benchmarks share: networks of the zoo and random graphs."""

import numpy as np

from placement.graphs import opgraph
from placement.instance import Instance
from placement.types import CostModel, OpGraph

NETWORKS = "bert_base", "inception_v3", "resnet50"


def make_two_device_problem(graph: OpGraph) -> Instance:
    """Returns a graph on two devices with random costs, objective 'serial'."""
    generator = np.random.default_rng(0)
    off_diagonal = 1.0 - np.eye(2, dtype=np.float32)
    costs = CostModel(
        compute_s=generator.random((graph.num_ops, 2), np.float32) * 1e-3,
        transfer_latency_s=off_diagonal * 1e-5,
        transfer_s_per_byte=off_diagonal * 1e-10,
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.full(2, np.inf, np.float32),
        accelerator=np.arange(2, dtype=np.int32),
    )
    return Instance(graph, costs, "serial", ("a", "b"))


def make_three_device_problem(graph: OpGraph, objective: str) -> Instance:
    """Returns a graph on three devices whose best placement is not obvious.

    Each device is the fastest for some operations; a transfer costs about as much as an operation.
    """
    problem = make_two_device_problem(graph)
    generator = np.random.default_rng(0)
    size = np.exp(generator.uniform(np.log(1e-5), np.log(1e-3), (graph.num_ops, 1)))
    speed = np.exp(generator.normal(0, 0.7, (graph.num_ops, 3)))
    off_diagonal = 1.0 - np.eye(3, dtype=np.float32)
    s_per_byte = 2e-4 / max(float(graph.edge_bytes.mean()), 1.0)
    costs = problem.costs._replace(
        compute_s=(size / speed).astype(np.float32),
        transfer_latency_s=off_diagonal * np.float32(2e-5),
        transfer_s_per_byte=off_diagonal * np.float32(s_per_byte),
        capacity_bytes=np.full(3, np.inf, np.float32),
        accelerator=np.arange(3, dtype=np.int32),
    )
    return problem._replace(costs=costs, objective=objective, devices=("a", "b", "c"))


def make_layered_problem(num_ops: int, objective: str) -> Instance:
    """Returns a random graph on two devices; under 'subgraph' the first one is the host.

    Every operation reads one or two of the eight operations before it.
    """
    generator = np.random.default_rng(0)
    receivers = np.repeat(np.arange(1, num_ops), generator.choice([1, 1, 1, 2], num_ops - 1))
    senders = np.maximum(receivers - generator.integers(1, 9, len(receivers)), 0)
    graph = opgraph.make_graph(
        name="layered",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=senders,
        receivers=receivers,
        edge_bytes=generator.integers(1, 100_000, num_ops)[senders],
    )
    problem = make_two_device_problem(graph)._replace(objective=objective)
    if objective == "subgraph":
        costs = problem.costs._replace(accelerator=np.array([-1, 0], np.int32))
        problem = problem._replace(costs=costs)
    return problem


def draw_segments(num_ops: int, batch: int) -> np.ndarray:
    """Returns random placements int32 [batch, N] on two devices that 'subgraph' allows.

    The second device holds one segment of the topological order; two would be infeasible.
    """
    ends = np.sort(np.random.default_rng(1).integers(0, num_ops, (batch, 2, 1)), axis=1)
    position = np.arange(num_ops)
    return ((position >= ends[:, 0]) & (position < ends[:, 1])).astype(np.int32)
