"""What the scheduler must know of a problem beside its costs: of operations and of devices."""

import dataclasses
from typing import NamedTuple

import numpy as np

from placement.instance import Instance
from placement.policies.cost_features import CostView, cost_view
from placement.simulators import ranks
from placement.types import Array

# Classes of operations in whose speed devices differ.
_TYPES = (
    ("MatMul", "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence"),
    ("Convolution", "GroupConvolution", "ConvolutionBackpropData"),
)


class Tables(NamedTuple):
    """What the policy must know of a problem beside its costs: N operations, padded."""

    unit_s: Array  # float32 []: the median operation's time, in which the policy counts
    onward: Array  # float32 [N, D]: PEFT's optimistic cost, over the unit
    node: Array  # float32 [N, 8]: what an operation costs, and where it stands
    device: Array  # float32 [D, 7]: what a device is; [D, D] its number alone
    memory: Array  # float32 [N]: over the graph's whole
    capacity: Array  # float32 [D]: over the same


def view(
    problem: Instance, num_nodes: int, num_edges: int, *, specifications: bool = True
) -> CostView[Tables]:
    """Makes the view of a problem, on the host.

    Args:
      problem: of the graph that the policy places.
      num_nodes: padded number of nodes of the policy's graph.
      num_edges: its padded number of edges.
      specifications: False withholds what tells devices apart: all cost the mean of those that
        there are, and one is known by its number alone, so that parameters are for D devices.
    """
    problem = problem if specifications else _without_specifications(problem)
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    mean_s = ranks.finite_mean(compute_s)
    unit_s = float(np.median(mean_s[mean_s > 0])) if (mean_s > 0).any() else 1.0
    onward = ranks.optimistic_cost_s(
        graph, compute_s, problem.mean_edge_delay_s, problem.topological_order
    )
    onward = onward / unit_s
    memory_bytes = np.asarray(costs.memory_bytes, np.float64)
    whole = memory_bytes.sum() or 1.0
    rows = (0, num_nodes - graph.num_ops)
    own = Tables(
        unit_s=np.asarray(unit_s),
        onward=np.pad(np.where(np.isfinite(onward), onward, 0.0), (rows, (0, 0))),
        node=np.pad(_node_features(problem, unit_s), (rows, (0, 0))),
        device=_device_features(problem, unit_s) if specifications else np.eye(compute_s.shape[1]),
        memory=np.pad(memory_bytes / whole, rows),
        capacity=np.asarray(costs.capacity_bytes, np.float64) / whole,
    )
    own = Tables(*(leaf.astype(np.float32) for leaf in own))
    return cost_view(problem, num_nodes, num_edges)._replace(own=own)


def _without_specifications(problem: Instance) -> Instance:
    """With means in the place of what differs from device to device, and from link to link."""
    costs = problem.costs
    compute_s = np.asarray(costs.compute_s, np.float32)
    num_devices = compute_s.shape[1]
    apart = ~np.eye(num_devices, dtype=bool)

    def mean_link(each: Array) -> np.ndarray:
        each = np.asarray(each)
        return np.where(apart, each[apart].mean() if apart.any() else 0.0, 0.0).astype(each.dtype)

    mean_s = ranks.finite_mean(compute_s)[:, None]
    alike = costs._replace(
        compute_s=np.where(np.isfinite(compute_s), mean_s, np.inf).astype(np.float32),
        transfer_latency_s=mean_link(costs.transfer_latency_s),
        transfer_s_per_byte=mean_link(costs.transfer_s_per_byte),
        capacity_bytes=np.full(num_devices, np.mean(costs.capacity_bytes), np.float32),
    )
    return problem._replace(costs=alike)


def _node_features(problem: Instance, unit_s: float) -> np.ndarray:
    """float64 [N, 8], of order 1."""
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    mean_s = ranks.finite_mean(compute_s)
    least_s = np.where(np.isfinite(compute_s), compute_s, np.inf).min(axis=1)
    least_s = np.where(np.isfinite(least_s), least_s, 0.0)
    onward_s = problem.upward_rank
    reverse = dataclasses.replace(graph, senders=graph.receivers, receivers=graph.senders)
    so_far_s = problem._replace(graph=reverse).upward_rank
    longest_s = float(onward_s.max()) or 1.0
    leaving_s = np.zeros(graph.num_ops)
    np.maximum.at(leaving_s, graph.senders, problem.mean_edge_delay_s)
    fan_out = np.bincount(graph.senders, minlength=graph.num_ops)
    fan_in = np.bincount(graph.receivers, minlength=graph.num_ops)
    columns = (
        *(np.log1p(mean_s / unit_s), np.log1p(least_s / unit_s), np.log1p(leaving_s / unit_s)),
        *(onward_s / longest_s, so_far_s / longest_s, (onward_s + so_far_s - mean_s) / longest_s),
        *(np.log1p(fan_in), np.log1p(fan_out)),
    )
    return np.stack(columns, axis=1)


def _device_features(problem: Instance, unit_s: float) -> np.ndarray:
    """float64 [D, 7]: its slowness, in all and by class of operation; its links; its memory."""
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    kinds = np.array([_kind(op_type) for op_type in graph.op_types])
    members = [np.ones(len(kinds), bool), *(kinds == kind for kind in range(len(_TYPES)))]
    slowness = [_slowness(compute_s[of_kind]) for of_kind in members]
    apart = ~np.eye(compute_s.shape[1], dtype=bool)
    latency_s = np.asarray(costs.transfer_latency_s, np.float64)
    s_per_byte = np.asarray(costs.transfer_s_per_byte, np.float64)
    mean_bytes = float(graph.edge_bytes.mean()) if graph.num_edges else 0.0
    links = [
        ranks.finite_mean(np.where(apart, each, np.inf))
        for each in (latency_s, s_per_byte * mean_bytes)
    ]
    needed = float(np.asarray(costs.memory_bytes, np.float64).sum()) or 1.0
    room = np.minimum(1.0, np.asarray(costs.capacity_bytes, np.float64) / needed)
    host = (np.asarray(costs.accelerator) < 0).astype(float)
    return np.stack([*slowness, *(np.log1p(x / unit_s) for x in links), room, host], axis=1)


def _kind(op_type: str) -> int:
    """The class of operations to which a type belongs; -1 for those that are light."""
    return next((kind for kind, types in enumerate(_TYPES) if op_type in types), -1)


def _slowness(compute_s: np.ndarray) -> np.ndarray:
    """Log of what each device takes, float64 [n, D], over the fastest; 0 where nothing computes."""
    total_s = np.where(np.isfinite(compute_s), compute_s, 0.0).sum(axis=0)
    least_s = total_s.min()
    return np.log(total_s / least_s) if least_s > 0 else np.zeros(len(total_s))
