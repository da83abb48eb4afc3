"""From what was profiled to a `CostModel`, and from a graph's costs to those of its coarsening."""

import math
from typing import Any, NamedTuple

import chex
import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.types import CostModel, OpGraph, SegmentCosts, TensorBytes

_LEAST = 0.1  # the share of sets that lose less than a launch, by chance


class DeviceProfile(NamedTuple):
    """What one inference costs on one device, as measured."""

    device: str
    latency_s: float  # median wall time of one inference of the whole model
    # Names of the operations that the plug-in runs as one kernel, and the kernel's wall time as
    # profiled, unscaled. An operation that costs nothing may be missing.
    kernels: tuple[tuple[tuple[str, ...], float], ...]
    unsupported: frozenset[str]  # names of the operations that the device cannot run


class Transfers(NamedTuple):
    """What handing one tensor from device to device costs: latency_s + bytes * s_per_byte."""

    latency_s: np.ndarray  # float64 [D, D], zero diagonal
    s_per_byte: np.ndarray  # float64 [D, D], zero diagonal


class SubmodelCosts(NamedTuple):
    """What M sets of operations cost as submodels of their own, devices at the same time."""

    groups: tuple[tuple[str, ...], ...]  # M disjoint sets of operations' names
    # float64 [M, D], from the end of the set before; nan where the device cannot run the set
    alone_s: np.ndarray
    # float64 [M, D]: how much longer it takes while all other devices compute, relative; nan where
    # that was not measured
    slowdown: np.ndarray
    # From the end of one submodel to the begin of the next on another, idle device, and what
    # reading there takes longer.
    transfers: Transfers


def to_json(profiles: tuple[DeviceProfile, ...], transfers: Transfers) -> dict[str, Any]:
    """Returns profiles and transfers as JSON-able data, for use on another machine."""
    return {
        "profiles": [p._asdict() | {"unsupported": sorted(p.unsupported)} for p in profiles],
        "crossings": {name: matrix.tolist() for name, matrix in transfers._asdict().items()},
    }


def from_json(data: dict[str, Any]) -> tuple[tuple[DeviceProfile, ...], Transfers]:
    """Reads what `to_json` wrote; other keys are ignored."""
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
    measured = {"alone_s": submodels.alone_s, "slowdown": submodels.slowdown}
    tables = {
        name: [[None if np.isnan(value) else value for value in row] for row in table.tolist()]
        for name, table in measured.items()
    }
    transfers = {name: matrix.tolist() for name, matrix in submodels.transfers._asdict().items()}
    return {"groups": [list(g) for g in submodels.groups]} | tables | transfers


def submodels_from_json(data: dict[str, Any]) -> SubmodelCosts:
    """Reads what `submodels_to_json` wrote; files from before slowdowns were measured have none."""
    groups, latency_s = data["groups"], np.array(data["latency_s"])
    shape = len(groups), len(latency_s)
    slowdown = data.get("slowdown")
    return SubmodelCosts(
        groups=tuple(tuple(group) for group in groups),
        alone_s=np.array(data["alone_s"], float).reshape(shape),
        slowdown=np.array(
            [np.nan] * math.prod(shape) if slowdown is None else slowdown, float
        ).reshape(shape),
        transfers=Transfers(latency_s, np.array(data["s_per_byte"])),
    )


def concurrent(graph: OpGraph, costs: CostModel, submodels: SubmodelCosts) -> CostModel:
    """Computes costs of devices that work at the same time, from those under HETERO.

    Cutting an edge between two of the sets costs what its reader takes longer by itself than within
    the whole model: the mean over the devices, but in segments, which know where the reader is.
    """
    number = {name: i for i, group in enumerate(submodels.groups) for name in group}
    group = np.array([number.get(name, -1) for name in graph.op_names])
    known = np.flatnonzero(group >= 0)
    inside_s = np.zeros(submodels.alone_s.shape)
    np.add.at(inside_s, group[known], np.asarray(costs.compute_s, float)[known])
    more_s = np.maximum(submodels.alone_s - inside_s, 0.0)
    # The last is of operations in no set.
    lost_s = np.append(np.nanmean(more_s, axis=1), 0.0)
    of_device_s = np.where(np.isnan(more_s), lost_s[:-1, None], more_s)
    of_device_s = np.concatenate([of_device_s, np.zeros((1, of_device_s.shape[1]))])
    slowdown = np.nan_to_num(submodels.slowdown, nan=0.0)
    slowdown = np.concatenate([slowdown, np.zeros((1, slowdown.shape[1]))])
    reader = group[graph.receivers]
    between = group[graph.senders] != reader
    within_s = np.asarray(costs.fusion_loss_s)
    return costs._replace(
        fusion_loss_s=np.where(between, lost_s[reader], within_s).astype(np.float32),
        transfer_latency_s=submodels.transfers.latency_s.astype(np.float32),
        transfer_s_per_byte=submodels.transfers.s_per_byte.astype(np.float32),
        in_segments=SegmentCosts(
            np.where(between[:, None], of_device_s[reader], within_s[:, None]).astype(np.float32),
            _launch_s(more_s).astype(np.float32),
            slowdown[group].astype(np.float32),
        ),
    )


def _launch_s(more_s: np.ndarray) -> np.ndarray:
    """What starting a submodel takes on each device, float64 [D].

    Args:
      more_s: float64 [M, D], what each set takes longer by itself, nan where it does not run. Those
        that lose nothing but a launch are among the least, of which some are too low by chance.
    """
    known = [column[column > 0] for column in more_s.T]
    return np.array([np.quantile(column, _LEAST) if column.size else 0.0 for column in known])


def cost_model(
    graph: OpGraph,
    profiles: tuple[DeviceProfile, ...],
    transfers: Transfers,
) -> CostModel:
    """Makes the `serial` cost model: kernels as profiled, scaled to the latency as measured.

    A kernel that runs several operations as one is booked on the one with most FLOPs (ties: the
    last named), the others are free: nothing is gained by moving them alone. Cutting an edge inside
    a kernel costs what the free end costs to run by itself, its bytes at the rate at which the
    device streams (`_standalone_s`).

    Args:
      graph: N operations; names link it to the profiles.
      profiles: one a device, in the order of the device indices.
      transfers: of the same devices.

    Returns:
      Costs with compute_s inf where a device does not support an operation. Memory is what the
      operation's weights occupy, capacities are unlimited.

    Raises:
      UserError: a device's kernels took no time, or are none of the graph's.
    """
    compute_s = np.stack([_compute_s(graph, profile) for profile in profiles], axis=1)
    for column, profile in enumerate(profiles):
        missing = [i for i, name in enumerate(graph.op_names) if name in profile.unsupported]
        compute_s[missing, column] = np.inf
    return CostModel(
        compute_s=compute_s.astype(np.float32),
        transfer_latency_s=transfers.latency_s.astype(np.float32),
        transfer_s_per_byte=transfers.s_per_byte.astype(np.float32),
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=_fusion_loss_s(graph, profiles).astype(np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.full(len(profiles), np.inf, np.float32),
        accelerator=np.arange(len(profiles), dtype=np.int32),
    )


def _compute_s(graph: OpGraph, profile: DeviceProfile) -> np.ndarray:
    """Computes seconds [N] of operations on one device, which sum to its measured latency."""
    index = {name: i for i, name in enumerate(graph.op_names)}
    seconds = np.zeros(graph.num_ops)
    for names, kernel_s in profile.kernels:
        members = [index[name] for name in names if name in index]
        if members:
            seconds[_heaviest(graph, members)] += kernel_s
    total = seconds.sum()
    if not total > 0:
        raise UserError(
            f"{profile.device} reports no time for any operation of {graph.name!r}, so that no "
            "cost can be told; leave it out of --config.devices"
        )
    return seconds * (profile.latency_s / total)


def _heaviest(graph: OpGraph, members: list[int]) -> int:
    return max(members, key=lambda i: (graph.flops[i], i))


def _fusion_loss_s(graph: OpGraph, profiles: tuple[DeviceProfile, ...]) -> np.ndarray:
    """Computes seconds [E] of a lost fusion: the largest over the devices, 0 between kernels."""
    index = {name: i for i, name in enumerate(graph.op_names)}
    fusion_loss_s = np.zeros(graph.num_edges)
    for profile in profiles:
        kernel = np.full(graph.num_ops, -1)
        for number, (names, _) in enumerate(profile.kernels):
            for name in names:
                if name in index:
                    kernel[index[name]] = number
        ends = kernel[graph.senders], kernel[graph.receivers]
        fused = (ends[0] == ends[1]) & (ends[0] >= 0)
        fusion_loss_s = np.maximum(fusion_loss_s, np.where(fused, _standalone_s(graph), 0.0))
    return fusion_loss_s


# A fused operation that runs alone reads and writes its tensor once more. 8 GB/s is what one core
# streams through OpenVINO's element-wise kernels out of cache; calibration replaces the figure.
_STREAM_BYTES_PER_S = 8e9


def _standalone_s(graph: OpGraph) -> np.ndarray:
    return 2.0 * graph.edge_bytes / _STREAM_BYTES_PER_S


def coarse_costs(costs: CostModel, assignment: np.ndarray, edges: np.ndarray) -> CostModel:
    """Sums costs over the members of a coarsening: `lift` changes no objective's value.

    Args:
      costs: of the N original operations.
      assignment: int32 [N], the coarse operation of each (`graphs.coarsen.Coarsening`).
      edges: int32 [E'], the original edge that each coarse edge is.

    Returns:
      Costs of the coarse operations and edges; inf where any member is unsupported.
    """
    chex.assert_rank([assignment, edges], 1)
    chex.assert_type([assignment, edges], int)
    num_coarse = int(assignment.max()) + 1
    compute_s = dag.part_sums(assignment, np.asarray(costs.compute_s, np.float64))
    memory_bytes = np.bincount(assignment, np.asarray(costs.memory_bytes), num_coarse)
    alive, in_segments = costs.tensor_bytes, costs.in_segments
    if in_segments is not None:
        # Operations that are merged were measured together.
        slowdown = np.zeros((num_coarse, compute_s.shape[1]), np.float32)
        slowdown[assignment] = in_segments.slowdown
        lost_s = np.asarray(in_segments.fusion_loss_s)[edges]
        in_segments = in_segments._replace(fusion_loss_s=lost_s, slowdown=slowdown)
    return costs._replace(
        in_segments=in_segments,
        tensor_bytes=alive and TensorBytes(*(np.asarray(of)[edges] for of in alive)),
        compute_s=compute_s.astype(np.float32),
        transfer_fixed_s=np.asarray(costs.transfer_fixed_s)[edges],
        fusion_loss_s=np.asarray(costs.fusion_loss_s)[edges],
        memory_bytes=memory_bytes.astype(np.float32),
    )
