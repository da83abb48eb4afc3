"""The problems that benchmarks share: networks of the zoo and random graphs, with random costs."""

import numpy as np

from placement.graphs import opgraph
from placement.instance import Instance
from placement.types import CostModel, OpGraph

NETWORKS = "bert_base", "inception_v3", "resnet50"


def two_devices(graph: OpGraph) -> Instance:
    """Returns a graph on two devices with random costs, objective 'serial'."""
    generator = np.random.default_rng(0)
    apart = 1.0 - np.eye(2, dtype=np.float32)
    costs = CostModel(
        compute_s=generator.random((graph.num_ops, 2), np.float32) * 1e-3,
        transfer_latency_s=apart * 1e-5,
        transfer_s_per_byte=apart * 1e-10,
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.full(2, np.inf, np.float32),
        accelerator=np.arange(2, dtype=np.int32),
    )
    return Instance(graph, costs, "serial", ("a", "b"))


def three_devices(graph: OpGraph, objective: str) -> Instance:
    """Returns a graph on three devices, on which placing it is a question.

    Each is the fastest for some operations; a transfer costs about an operation.
    """
    problem = two_devices(graph)
    generator = np.random.default_rng(0)
    size = np.exp(generator.uniform(np.log(1e-5), np.log(1e-3), (graph.num_ops, 1)))
    speed = np.exp(generator.normal(0, 0.7, (graph.num_ops, 3)))
    apart = 1.0 - np.eye(3, dtype=np.float32)
    rate = 2e-4 / max(float(graph.edge_bytes.mean()), 1.0)
    costs = problem.costs._replace(
        compute_s=(size / speed).astype(np.float32),
        transfer_latency_s=apart * np.float32(2e-5),
        transfer_s_per_byte=apart * np.float32(rate),
        capacity_bytes=np.full(3, np.inf, np.float32),
        accelerator=np.arange(3, dtype=np.int32),
    )
    return problem._replace(costs=costs, objective=objective, devices=("a", "b", "c"))


def of_size(num_ops: int, objective: str) -> Instance:
    """Returns a random graph on two devices, of which one is a host under 'subgraph'."""
    problem = two_devices(_layered(num_ops))._replace(objective=objective)
    if objective == "subgraph":
        costs = problem.costs._replace(accelerator=np.array([-1, 0], np.int32))
        problem = problem._replace(costs=costs)
    return problem


def segments(num_ops: int, batch: int) -> np.ndarray:
    """Returns random placements int32 [batch, N] on two devices that 'subgraph' allows.

    The second holds one segment of the topological order: more would be infeasible.
    """
    ends = np.sort(np.random.default_rng(1).integers(0, num_ops, (batch, 2, 1)), axis=1)
    place = np.arange(num_ops)
    return ((place >= ends[:, 0]) & (place < ends[:, 1])).astype(np.int32)


def _layered(num_ops: int) -> OpGraph:
    """Returns a random graph: every operation reads one or two of the eight before it."""
    generator = np.random.default_rng(0)
    receivers = np.repeat(np.arange(1, num_ops), generator.choice([1, 1, 1, 2], num_ops - 1))
    back = generator.integers(1, 9, len(receivers))
    senders = np.maximum(receivers - back, 0)
    return opgraph.make(
        name="layered",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=senders,
        receivers=receivers,
        edge_bytes=generator.integers(1, 100_000, num_ops)[senders],
    )
