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
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

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


class _Node(NamedTuple):
    id: int
    name: str
    cpu_cost: float
    fpga_cost: float
    is_supported: bool  # whether an accelerator can run it
    is_backward: bool
    colour: int | None
    size: float


class _Edge(NamedTuple):
    source: int  # an index, not an id
    dest: int
    cost: float
    size: float


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
    nodes = _read_nodes(data, place)
    edges = _read_edges(data, place, {node.id: index for index, node in enumerate(nodes)})

    num_accelerators = _read(data, "maxFPGAs", place, _COUNT)
    num_hosts = _read(data, "maxCPUs", place, _COUNT)
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
        if not is_host.any() and not node.is_supported:
            raise ValueError(
                f"{place}, nodes[{number}]: supportedOnFpga is false, but maxCPUs is 0, so that no "
                "device runs it; support it or raise maxCPUs"
            )

    cpu_cost = np.array([node.cpu_cost for node in nodes], np.float32)
    fpga_cost = np.array(
        [node.fpga_cost if node.is_supported else np.inf for node in nodes], np.float32
    )
    capacity_bytes = _read(data, "maxSizePerFPGA", place, _NUMBER)
    costs = CostModel(
        compute_s=np.where(is_host, cpu_cost[:, None], fpga_cost[:, None]),
        transfer_latency_s=np.zeros((num_devices, num_devices), np.float32),
        transfer_s_per_byte=np.zeros((num_devices, num_devices), np.float32),
        transfer_fixed_s=np.array([edge.cost for edge in edges], np.float32),
        fusion_loss_s=np.zeros(len(edges), np.float32),
        memory_bytes=np.array([node.size for node in nodes], np.float32),
        capacity_bytes=np.where(is_host, np.float32(np.inf), np.float32(capacity_bytes)),
        accelerator=accelerator,
    )
    devices = (*accelerator_names, *host_names)
    return Workload(_make_graph(nodes, edges, name), costs, devices)


def _read_nodes(data: Any, place: str) -> list[_Node]:
    nodes: list[_Node] = []
    for number, record in enumerate(_read(data, "nodes", place, _OBJECTS)):
        node_place = f"{place}, nodes[{number}]"
        node_id = _read(record, "id", node_place, _INTEGER)
        node = _Node(
            id=node_id,
            name=_read(record, "name", node_place, _NAME, f"node{node_id}"),
            cpu_cost=_read(record, "cpuLatency", node_place, _NUMBER),
            fpga_cost=_read(record, "fpgaLatency", node_place, _NUMBER),
            is_supported=bool(_read(record, "supportedOnFpga", node_place, _FLAG, True)),
            is_backward=bool(_read(record, "isBackwardNode", node_place, _FLAG, False)),
            colour=_read(record, "colorClass", node_place, _INTEGER, None),
            size=_read(record, "size", node_place, _NUMBER, 0),
        )
        nodes.append(node)
    number_by_id: dict[int, int] = {}
    for number, node in enumerate(nodes):
        if (first := number_by_id.setdefault(node.id, number)) != number:
            raise ValueError(
                f"{place}, nodes[{number}]: id is {node.id}, as is that of nodes[{first}];"
                " ids must be unique: renumber one of them"
            )
    return nodes


def _read_edges(data: Any, place: str, index_by_id: dict[int, int]) -> list[_Edge]:
    edges = []
    for number, record in enumerate(_read(data, "edges", place, _OBJECTS)):
        edge_place = f"{place}, edges[{number}]"
        ends = {f: _read(record, f, edge_place, _INTEGER) for f in ("sourceId", "destId")}
        for field, node_id in ends.items():
            if node_id not in index_by_id:
                raise ValueError(
                    f"{edge_place}: {field} is {node_id}, which is not a node's id; pass the id of "
                    "a node or drop the edge"
                )
        edge = _Edge(
            source=index_by_id[ends["sourceId"]],
            dest=index_by_id[ends["destId"]],
            cost=_read(record, "cost", edge_place, _NUMBER),
            size=_read(record, "size", edge_place, _NUMBER, 0),
        )
        edges.append(edge)
    return edges


def _make_graph(nodes: list[_Node], edges: list[_Edge], name: str) -> OpGraph:
    first_of_colour: dict[int, int] = {}
    colocation = [
        op if node.colour is None else first_of_colour.setdefault(node.colour, op)
        for op, node in enumerate(nodes)
    ]
    numbers: dict[tuple[int, float], int] = {}
    tensors = [numbers.setdefault((edge.source, edge.cost), len(numbers)) for edge in edges]
    tensor_bytes = np.zeros(len(numbers))
    np.maximum.at(tensor_bytes, tensors, [edge.size for edge in edges])
    # Append its id to each name that repeats. The result can repeat another node's name, hence the
    # loop. It ends, because a name with an id can only equal a name that has no id appended yet.
    op_names = [node.name for node in nodes]
    while len(set(op_names)) < len(op_names):
        counts = collections.Counter(op_names)
        op_names = [
            f"{op_name}.{node.id}" if counts[op_name] > 1 else op_name
            for op_name, node in zip(op_names, nodes, strict=True)
        ]
    return opgraph.make_graph(
        name=name,
        op_names=op_names,
        op_types=["WorkloadBackward" if node.is_backward else "Workload" for node in nodes],
        senders=[edge.source for edge in edges],
        receivers=[edge.dest for edge in edges],
        edge_bytes=np.rint(tensor_bytes)[tensors],
        weight_bytes=np.rint([node.size for node in nodes]),
        colocation=colocation,
        tensors=tensors,
        backward=[node.is_backward for node in nodes],
    )


class _FieldType(NamedTuple):
    """The values that a field may have: a description and a test."""

    valid: str
    accepts: Callable[[Any], bool]


MAX_DEVICES = 1024  # costs are matrices of devices by devices and by operations
_MAX_NUMBER = 1e18  # fits float32 and int64
_REQUIRED = object()

_NUMBER = _FieldType(
    f"a number from 0 to {_MAX_NUMBER:g}",
    lambda value: type(value) in (int, float) and 0 <= value <= _MAX_NUMBER,
)
_INTEGER = _FieldType("a whole number", lambda value: type(value) is int)
_COUNT = _FieldType("a whole number from 0 on", lambda value: type(value) is int and value >= 0)
_FLAG = _FieldType(
    "true, false, 0 or 1", lambda value: type(value) in (bool, int) and value in (0, 1)
)
_NAME = _FieldType("a string", lambda value: isinstance(value, str))
_OBJECTS = _FieldType(
    "a list of objects",
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
)


def _read(
    record: Any, field: str, place: str, field_type: _FieldType, default: Any = _REQUIRED
) -> Any:
    """Returns a field of a JSON object, or the default if it is missing or null.

    Args:
      record: the object.
      field: the name of the field.
      place: the object's place in the file, for messages.
      field_type: the values that are valid.
      default: the default; without one the field is required.
    """
    if not isinstance(record, dict):
        raise ValueError(
            f"{place} is {reprlib.repr(record)}; pass a JSON object with the field {field}, "
            f"{field_type.valid}"
        )
    value = record.get(field)
    if value is None and default is not _REQUIRED:
        return default
    if value is None:
        raise ValueError(f"{place} has no {field}; pass {field_type.valid}")
    if not field_type.accepts(value):
        raise ValueError(f"{place}: {field} is {reprlib.repr(value)}; pass {field_type.valid}")
    return value
