"""Cost models from measured profiles, and the costs of a coarsened graph."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import numpy as np

from placement.errors import UserError
from placement.graphs import constants, dag
from placement.types import CostModel, OpGraph, SegmentCosts, TensorBytes

# The share of submodels whose measured loss is below a launch by chance.
_LAUNCH_QUANTILE = 0.1

# A fused operation that runs alone reads and writes its tensor once more. One core streams 8 GB/s
# through OpenVINO's element-wise kernels out of cache.
_STREAM_BYTES_PER_S = 8e9


class DeviceProfile(NamedTuple):
    """Measurements of one inference of the whole model on one device."""

    device: str
    latency_s: float  # median wall time
    # For each kernel the names of the operations that it runs and its profiled wall time, unscaled.
    # An operation that costs nothing may be missing.
    kernels: tuple[tuple[tuple[str, ...], float], ...]
    unsupported: frozenset[str]  # names of the operations that the device cannot run


class Transfers(NamedTuple):
    """Costs of handing one tensor from device to device: latency_s + bytes * s_per_byte."""

    latency_s: np.ndarray  # float64 [D, D], zero diagonal
    s_per_byte: np.ndarray  # float64 [D, D], zero diagonal


class SubmodelCosts(NamedTuple):
    """Costs of M sets of operations as submodels, for devices that work at the same time."""

    groups: tuple[tuple[str, ...], ...]  # M disjoint sets of operation names
    # float64 [M, D]: seconds from the end of the previous set, while other devices are idle; nan if
    # the device cannot run the set
    alone_s: np.ndarray
    # From the end of a submodel to the begin of the next one on another, idle device, and the
    # additional time for reading there.
    transfers: Transfers


def to_json(profiles: tuple[DeviceProfile, ...], transfers: Transfers) -> dict[str, Any]:
    """Returns profiles and transfers as JSON-able data, for use on another machine."""
    return {
        "profiles": [p._asdict() | {"unsupported": sorted(p.unsupported)} for p in profiles],
        "crossings": {name: matrix.tolist() for name, matrix in transfers._asdict().items()},
    }


def from_json(data: dict[str, Any]) -> tuple[tuple[DeviceProfile, ...], Transfers]:
    """Reads the data of `to_json`; other keys are ignored."""
    profiles = tuple(
        DeviceProfile(
            device=p["device"],
            latency_s=p["latency_s"],
            kernels=tuple((tuple(names), seconds) for names, seconds in p["kernels"]),
            unsupported=frozenset(p["unsupported"]),
        )
        for p in data["profiles"]
    )
    transfers = {name: np.array(matrix) for name, matrix in data["crossings"].items()}
    return profiles, Transfers(**transfers)


def submodels_to_json(submodels: SubmodelCosts) -> dict[str, Any]:
    """Returns JSON-able data; nan becomes None."""
    rows = submodels.alone_s.tolist()
    alone_s = [[None if np.isnan(value) else value for value in row] for row in rows]
    transfers = {name: matrix.tolist() for name, matrix in submodels.transfers._asdict().items()}
    return {"groups": [list(group) for group in submodels.groups], "alone_s": alone_s} | transfers


def submodels_from_json(data: dict[str, Any]) -> SubmodelCosts:
    """Reads the data of `submodels_to_json`."""
    groups, latency_s = data["groups"], np.array(data["latency_s"])
    return SubmodelCosts(
        groups=tuple(tuple(group) for group in groups),
        alone_s=np.array(data["alone_s"], float).reshape(len(groups), len(latency_s)),
        transfers=Transfers(latency_s, np.array(data["s_per_byte"])),
    )


def make_concurrent(graph: OpGraph, costs: CostModel, submodels: SubmodelCosts) -> CostModel:
    """Converts costs under HETERO to costs of devices that work at the same time.

    Cutting an edge between two of the sets costs the additional time that the reading set takes as
    a separate submodel, compared with the same operations inside the whole model. The edge's
    `fusion_loss_s` is the mean over devices; `SegmentCosts` has it for each device of the reader.
    """
    set_by_name = {name: i for i, group in enumerate(submodels.groups) for name in group}
    op_sets = np.array([set_by_name.get(name, -1) for name in graph.op_names])
    listed_ops = np.flatnonzero(op_sets >= 0)
    inside_s = np.zeros(submodels.alone_s.shape)
    np.add.at(inside_s, op_sets[listed_ops], np.asarray(costs.compute_s, float)[listed_ops])
    extra_s = np.maximum(submodels.alone_s - inside_s, 0.0)

    # Starting a submodel: among the sets with the least extra time are some that lose only a
    # launch. The very least are too low by chance.
    positive_columns = [column[column > 0] for column in extra_s.T]
    launch_s = np.array(
        [np.quantile(c, _LAUNCH_QUANTILE) if c.size else 0.0 for c in positive_columns]
    )

    # The appended last row is that of operations in no set, whose number is -1.
    mean_extra_s = np.append(np.nanmean(extra_s, axis=1), 0.0)
    device_extra_s = np.where(np.isnan(extra_s), mean_extra_s[:-1, None], extra_s)
    device_extra_s = np.concatenate([device_extra_s, np.zeros((1, device_extra_s.shape[1]))])
    reader_sets = op_sets[graph.receivers]
    is_between_sets = op_sets[graph.senders] != reader_sets
    fusion_loss_s = np.asarray(costs.fusion_loss_s)
    return costs._replace(
        fusion_loss_s=np.where(is_between_sets, mean_extra_s[reader_sets], fusion_loss_s).astype(
            np.float32
        ),
        transfer_latency_s=submodels.transfers.latency_s.astype(np.float32),
        transfer_s_per_byte=submodels.transfers.s_per_byte.astype(np.float32),
        segment_costs=SegmentCosts(
            np.where(
                is_between_sets[:, None], device_extra_s[reader_sets], fusion_loss_s[:, None]
            ).astype(np.float32),
            launch_s.astype(np.float32),
        ),
    )


def cost_model(
    graph: OpGraph,
    profiles: tuple[DeviceProfile, ...],
    transfers: Transfers,
) -> CostModel:
    """Makes the `serial` cost model from profiled kernels, scaled to the measured latency.

    The time of a kernel that runs several operations belongs to the operation with most FLOPs
    (ties: the last one); the others are free, because moving them alone saves nothing. Cutting an
    edge inside a kernel costs one more read and write of the edge's tensor, the largest over the
    devices.

    Args:
      graph: N operations; their names link them to the profiles.
      profiles: one for each device, in the order of the device indices.
      transfers: the transfer costs of the same devices.

    Returns:
      Costs with compute_s inf where a device does not support an operation. An operation occupies
      the memory of its weights; capacities are unlimited (`limit_memory`).

    Raises:
      UserError: a device's kernels took no time, or run none of the graph's operations.
    """
    op_index = {name: i for i, name in enumerate(graph.op_names)}
    columns = []  # compute seconds [N] on each device
    is_fused_edge = np.zeros(graph.num_edges, bool)  # on any device
    for profile in profiles:
        seconds, kernel_of_op = np.zeros(graph.num_ops), np.full(graph.num_ops, -1)
        for number, (names, kernel_s) in enumerate(profile.kernels):
            ops = [op_index[name] for name in names if name in op_index]
            if ops:
                kernel_of_op[ops] = number
                seconds[max(ops, key=lambda op: (graph.flops[op], op))] += kernel_s
        profiled_s = seconds.sum()
        if not profiled_s > 0:
            raise UserError(
                f"{profile.device} reports no time for any operation of {graph.name!r}, so that "
                "its costs are unknown; leave it out of devices"
            )
        seconds *= profile.latency_s / profiled_s
        seconds[[name in profile.unsupported for name in graph.op_names]] = np.inf
        columns.append(seconds)
        sender_kernel, reader_kernel = kernel_of_op[graph.senders], kernel_of_op[graph.receivers]
        is_fused_edge |= (sender_kernel == reader_kernel) & (sender_kernel >= 0)
    fusion_loss_s = np.where(is_fused_edge, 2.0 * graph.edge_bytes / _STREAM_BYTES_PER_S, 0.0)
    return CostModel(
        compute_s=np.stack(columns, axis=1).astype(np.float32),
        transfer_latency_s=transfers.latency_s.astype(np.float32),
        transfer_s_per_byte=transfers.s_per_byte.astype(np.float32),
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=fusion_loss_s.astype(np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.full(len(profiles), np.inf, np.float32),
        accelerator=np.arange(len(profiles), dtype=np.int32),
    )


def find_tensor_bytes(graph: OpGraph) -> TensorBytes:
    """Computes the memory of a graph's tensors: their bytes in the model.

    Constants, what is computed from them, and variables of training are in the memory that
    operations occupy; only a copy on another device occupies memory as a tensor.
    """
    is_variable = np.array([op_type == "Variable" for op_type in graph.op_types])
    is_stored = constants.find_constants(graph)[0] | is_variable
    copied_bytes = graph.edge_bytes.astype(np.float32)
    return TensorBytes(
        np.where(is_stored[graph.senders], np.float32(0), copied_bytes), copied_bytes
    )


def limit_memory(
    costs: CostModel,
    graph: OpGraph,
    capacity_bytes: Sequence[float | None],
) -> CostModel:
    """Adds the devices' memory to profiled costs, and the memory of tensors and states.

    The state that a ReadValue holds from one inference to the next stays in its device's memory.
    Without a limit (all capacities None) the costs stay as they are.
    """
    if all(num_bytes is None for num_bytes in capacity_bytes):
        return costs
    state_bytes = np.zeros(graph.num_ops)
    np.maximum.at(state_bytes, graph.senders, graph.edge_bytes)
    state_bytes[[op_type != "ReadValue" for op_type in graph.op_types]] = 0
    capacities = [np.inf if num_bytes is None else num_bytes for num_bytes in capacity_bytes]
    return costs._replace(
        memory_bytes=(np.asarray(costs.memory_bytes) + state_bytes).astype(np.float32),
        capacity_bytes=np.array(capacities, np.float32),
        tensor_bytes=find_tensor_bytes(graph),
    )


def coarse_costs(costs: CostModel, assignment: np.ndarray, edges: np.ndarray) -> CostModel:
    """Sums costs over the members of a coarsening, so that merging changes no value.

    Args:
      costs: the costs of the N original operations.
      assignment: int32 [N], the coarse operation of each (`graphs.coarsen.Coarsening`).
      edges: int32 [E'], the original edge of each coarse edge.
    """
    chex.assert_rank([assignment, edges], 1)
    chex.assert_type([assignment, edges], int)
    num_coarse = int(assignment.max()) + 1
    compute_s = dag.sum_by_part(assignment, np.asarray(costs.compute_s, np.float64))
    memory_bytes = np.bincount(assignment, np.asarray(costs.memory_bytes), num_coarse)
    segment_costs, tensor_bytes = costs.segment_costs, costs.tensor_bytes
    if segment_costs is not None:
        segment_costs = segment_costs._replace(
            fusion_loss_s=np.asarray(segment_costs.fusion_loss_s)[edges]
        )
    if tensor_bytes is not None:
        tensor_bytes = TensorBytes(*(np.asarray(sizes)[edges] for sizes in tensor_bytes))
    return costs._replace(
        segment_costs=segment_costs,
        tensor_bytes=tensor_bytes,
        compute_s=compute_s.astype(np.float32),
        transfer_fixed_s=np.asarray(costs.transfer_fixed_s)[edges],
        fusion_loss_s=np.asarray(costs.fusion_loss_s)[edges],
        memory_bytes=memory_bytes.astype(np.float32),
    )
