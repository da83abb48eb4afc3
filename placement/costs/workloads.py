"""Workload files in the JSON format of Tarnawski et al. (NeurIPS 2020, arXiv 2006.16423).

A file describes a graph, its costs and the machine. The format calls accelerators FPGAs, whatever
they are. A field in brackets may be missing or null; it then has the value after the colon:

    maxFPGAs, maxCPUs   the number of accelerators and of CPU cores
    maxSizePerFPGA      bytes that fit on an accelerator
    nodes               objects of
        id                 a whole number, unique
        cpuLatency         its cost on a CPU core
        fpgaLatency        its cost on an accelerator
        [supportedOnFpga]  whether an accelerator can run it: true
        [isBackwardNode]   whether it belongs to the backward pass: false
        [colorClass]       a whole number, equal for nodes that must share a device: none
        [size]             bytes that it occupies on an accelerator: 0
        [name]             'node' and the id. Names that repeat have the id appended
    edges               objects of
        sourceId, destId   ids of nodes
        cost               cost of the source's output between an accelerator and the host
        [size]             its bytes: 0

Times have no unit; they are used as if they were seconds. Flags are true, false, 1 or 0. Other
fields are ignored.
"""

import collections
import reprlib
from typing import Any, NamedTuple

import numpy as np

from placement import files
from placement.graphs import opgraph
from placement.types import CostModel, OpGraph


class Optimum(NamedTuple):
    """A best placement under `makespan`, known because the workload was made from it."""

    placement: np.ndarray  # int32 [N]
    value_s: float


class Workload(NamedTuple):
    """A graph and its costs on the devices that its file describes."""

    graph: OpGraph
    costs: CostModel
    devices: tuple[str, ...]  # D names: the accelerators in order, then the hosts
    optimum: Optimum | None = None  # None of files


MAX_DEVICES = 1024  # costs are matrices of devices by devices and by operations
# The largest value of each number, which fits float32 and int64, and of flags.
_LARGEST = {
    **dict.fromkeys(("maxFPGAs", "maxCPUs", "maxSizePerFPGA", "size", "cost"), 1e18),
    **dict.fromkeys(("cpuLatency", "fpgaLatency"), 1e18),
    **dict.fromkeys(("supportedOnFpga", "isBackwardNode"), 1),
}
_NAME, _COLOUR, _SIZE = (files.OptionalField((kind, None)) for kind in (str, int, float))
_FLAG = files.OptionalField((bool, int, None))
_NODE = {
    **{"id": int, "cpuLatency": float, "fpgaLatency": float, "name": _NAME, "size": _SIZE},
    **{"supportedOnFpga": _FLAG, "isBackwardNode": _FLAG, "colorClass": _COLOUR},
}
_EDGE = {"sourceId": int, "destId": int, "cost": float, "size": _SIZE}
_SCHEMA = {
    **{"maxFPGAs": int, "maxCPUs": int, "maxSizePerFPGA": float},
    **{"nodes": [_NODE], "edges": [_EDGE]},
}
_DEFAULTS = {"supportedOnFpga": True, "isBackwardNode": False, "colorClass": None, "size": 0}


def from_json(data: Any, *, name: str, objective: str, parts: int = 1) -> Workload:
    """Reads a workload.

    Operations and edges keep the order of the file. The memory of an operation is its node's size;
    only accelerators have a limit. Transferring a tensor costs the cost of its edge, between any
    two devices and whatever its bytes; the simulators ensure that hosts pay nothing.

    The paper's c_u is a cost of the producing node, so the edges of one source carry one tensor.
    There are two departures. If these edges differ in cost, which the authors' code refuses, each
    cost is a separate tensor. If they differ in size, which the authors' code does not read (14
    sources of the ResNet50 training graph), the tensor has the largest size.

    Args:
      data: the parsed JSON.
      name: the name of the workload, for reports.
      objective: 'subgraph' has one infinitely wide host 'cpu', whatever maxCPUs is. Under any other
        objective the hosts are 'cpu0', 'cpu1', ...
      parts: the number of successive parts that an accelerator runs (the paper's q). Each part is
        a device: 'acc0.0', 'acc0.1', ... Only 'subgraph' allows more than 1.

    Raises:
      ValueError: `data` does not have this format, describes no device or a node that no device
        runs; `parts` does not fit the objective; or the graph is invalid (`opgraph.validate`).
    """
    place = f"workload {name!r}"
    if parts < 1 or (parts > 1 and objective != "subgraph"):
        raise ValueError(
            f"{place}: parts is {parts} with objective {objective!r}; pass 1, or 1 and more with "
            "objective 'subgraph'"
        )
    files.check(data, _SCHEMA, place)
    limits = _fill(data, _SCHEMA, place)
    nodes = [_fill(n, _NODE, f"{place}, nodes[{i}]") for i, n in enumerate(data["nodes"])]
    edges = [_fill(e, _EDGE, f"{place}, edges[{i}]") for i, e in enumerate(data["edges"])]
    index_by_id: dict[int, int] = {}
    for number, node in enumerate(nodes):
        if (first := index_by_id.setdefault(node["id"], number)) != number:
            raise ValueError(
                f"{place}, nodes[{number}]: id is {node['id']}, as is that of nodes[{first}]; "
                "ids must be unique: renumber one of them"
            )
    for number, edge in enumerate(edges):
        for field in ("sourceId", "destId"):
            if edge[field] not in index_by_id:
                raise ValueError(
                    f"{place}, edges[{number}]: {field} is {edge[field]}, which is not a node's "
                    "id; pass the id of a node or drop the edge"
                )

    num_accelerators, num_hosts = limits["maxFPGAs"], limits["maxCPUs"]
    num_devices = num_accelerators * parts + (1 if objective == "subgraph" else num_hosts)
    if num_devices > MAX_DEVICES:
        raise ValueError(
            f"{place} has {num_devices} devices: maxFPGAs is {num_accelerators}, of {parts} parts "
            f"each, and maxCPUs {num_hosts}; pass at most {MAX_DEVICES} in all"
        )
    if not num_devices:
        raise ValueError(f"{place} has no device: maxFPGAs and maxCPUs are 0; raise one of them")
    accelerator_names = [f"acc{number}" for number in range(num_accelerators)]
    if parts > 1:
        accelerator_names = [f"{acc}.{part}" for acc in accelerator_names for part in range(parts)]
    host_names = (
        ["cpu"] if objective == "subgraph" else [f"cpu{number}" for number in range(num_hosts)]
    )
    accelerator = np.full(num_devices, -1, np.int32)
    accelerator[: num_accelerators * parts] = np.arange(num_accelerators).repeat(parts)
    is_host = accelerator < 0
    for number, node in enumerate(nodes):
        if not is_host.any() and not node["supportedOnFpga"]:
            raise ValueError(
                f"{place}, nodes[{number}]: supportedOnFpga is false, but maxCPUs is 0, so that no "
                "device runs it; support it or raise maxCPUs"
            )

    cpu_cost = np.array([node["cpuLatency"] for node in nodes], np.float32)
    fpga_cost = np.array([node["fpgaLatency"] for node in nodes], np.float32)
    fpga_cost[[not node["supportedOnFpga"] for node in nodes]] = np.inf
    costs = CostModel(
        compute_s=np.where(is_host, cpu_cost[:, None], fpga_cost[:, None]),
        transfer_latency_s=np.zeros((num_devices, num_devices), np.float32),
        transfer_s_per_byte=np.zeros((num_devices, num_devices), np.float32),
        transfer_fixed_s=np.array([edge["cost"] for edge in edges], np.float32),
        fusion_loss_s=np.zeros(len(edges), np.float32),
        memory_bytes=np.array([node["size"] for node in nodes], np.float32),
        capacity_bytes=np.where(is_host, np.float32(np.inf), np.float32(limits["maxSizePerFPGA"])),
        accelerator=accelerator,
    )
    first_of_colour: dict[int, int] = {}
    colocation = [
        op if node["colorClass"] is None else first_of_colour.setdefault(node["colorClass"], op)
        for op, node in enumerate(nodes)
    ]
    senders = [index_by_id[edge["sourceId"]] for edge in edges]
    numbers: dict[tuple[int, float], int] = {}
    tensors = [
        numbers.setdefault((sender, edge["cost"]), len(numbers))
        for sender, edge in zip(senders, edges, strict=True)
    ]
    tensor_bytes = np.zeros(len(numbers))
    np.maximum.at(tensor_bytes, tensors, [edge["size"] for edge in edges])
    # Append its id to each name that repeats. The result can repeat another node's name, hence the
    # loop. It ends, because a name with an id can only equal a name that has no id appended yet.
    op_names = [node.get("name", f"node{node['id']}") for node in nodes]
    while len(set(op_names)) < len(op_names):
        counts = collections.Counter(op_names)
        op_names = [
            f"{op_name}.{node['id']}" if counts[op_name] > 1 else op_name
            for op_name, node in zip(op_names, nodes, strict=True)
        ]
    is_backward = [bool(node["isBackwardNode"]) for node in nodes]
    graph = opgraph.make_graph(
        name=name,
        op_names=op_names,
        op_types=["WorkloadBackward" if backward else "Workload" for backward in is_backward],
        senders=senders,
        receivers=[index_by_id[edge["destId"]] for edge in edges],
        edge_bytes=np.rint(tensor_bytes)[tensors],
        weight_bytes=np.rint([node["size"] for node in nodes]),
        colocation=colocation,
        tensors=tensors,
        backward=is_backward,
    )
    return Workload(graph, costs, (*accelerator_names, *host_names))


def _fill(record: dict[str, Any], schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Returns the fields of a JSON object, those that are missing or null with their defaults.

    A number or flag out of range is a ValueError.
    """
    given = {key: record[key] for key in schema if record.get(key) is not None}
    values = {key: value for key, value in _DEFAULTS.items() if key in schema} | given
    for key, largest in _LARGEST.items():
        if key in values and not 0 <= values[key] <= largest:
            raise ValueError(
                f"{place}: {key} is {reprlib.repr(values[key])}; pass a number from 0 to "
                f"{largest:g}"
            )
    return values
