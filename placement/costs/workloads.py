"""Workloads in the JSON format of Tarnawski et al. (NeurIPS 2020, arXiv 2006.16423).

One file holds a graph, what it costs and the machine, whose accelerators are called FPGAs whatever
they are. A field in brackets may be missing or null, and then means what stands behind the colon:

    maxFPGAs, maxCPUs   how many accelerators and CPU cores there are
    maxSizePerFPGA      bytes that fit on an accelerator
    nodes               objects of
        id                 a whole number, unique
        cpuLatency         what it costs on a CPU core
        fpgaLatency        what it costs on an accelerator
        [supportedOnFpga]  whether an accelerator can run it: true
        [isBackwardNode]   whether it belongs to the backward pass: false
        [colorClass]       a whole number, equal for nodes that must share a device: alone
        [size]             bytes that it occupies on an accelerator: 0
        [name]             'node' and the id. Names that repeat have the id appended
    edges               objects of
        sourceId, destId   ids of nodes
        cost               what the source's output costs between an accelerator and the host
        [size]             its bytes: 0

Times have no unit: they are taken as they stand, as if they were seconds. Flags are true, false, 1
or 0. Other fields are ignored.
"""

import collections
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from placement.errors import UserError
from placement.graphs import opgraph
from placement.types import CostModel, OpGraph


class Workload(NamedTuple):
    """A graph and its costs on the devices that its file describes."""

    graph: OpGraph
    costs: CostModel
    devices: tuple[str, ...]  # D names: the accelerators in order, then the hosts


class _Node(NamedTuple):
    id: int
    name: str
    cpu: float
    fpga: float
    supported: bool
    backward: bool
    colour: int | None
    size: float


class _Edge(NamedTuple):
    source: int  # an index, not an id
    dest: int
    cost: float
    size: float


def from_json(data: Any, *, name: str, objective: str, parts: int = 1) -> Workload:
    """Reads a workload.

    Operations and edges keep the file's order. Memory is a node's size, limited on accelerators
    alone. A tensor's transfer costs its edge's cost, between any two devices and whatever its
    bytes: the simulators see to it that hosts pay nothing.

    The paper's c_u is a cost of the producing node, so the edges of one source carry one tensor.
    Two departures: where they differ in cost, which the authors' code refuses, each cost is a
    tensor of its own; where they differ in size, which it does not read (14 sources of the ResNet50
    training graph), the tensor has the largest.

    Args:
      data: the parsed JSON.
      name: of the workload, for reports.
      objective: 'subgraph' has one infinitely wide host 'cpu', whatever maxCPUs says; under any
        other there are 'cpu0', 'cpu1', ...
      parts: how many successive parts an accelerator runs (the paper's q), each a device: 'acc0.0',
        'acc0.1', ... Above 1 only with 'subgraph'.

    Raises:
      UserError: `data` is not of this format, describes no device or a node that runs on none,
        `parts` does not fit the objective, or the graph is not valid (`opgraph.validate`).
    """
    where = f"workload {name!r}"
    if parts < 1 or (parts > 1 and objective != "subgraph"):
        raise UserError(
            f"{where}: parts is {parts} with objective {objective!r}; give 1, or 1 and more with "
            "objective 'subgraph'"
        )
    nodes = _nodes(data, where)
    edges = _edges(data, where, {node.id: index for index, node in enumerate(nodes)})
    devices, accelerator = _devices(data, where, objective, parts)
    is_host = accelerator < 0
    if not is_host.any():
        _check_supported(nodes, where)
    on_fpga = [node.fpga if node.supported else np.inf for node in nodes]
    on_cpu = [node.cpu for node in nodes]
    capacity_bytes = _read(data, "maxSizePerFPGA", where, _NUMBER)
    costs = CostModel(
        compute_s=np.where(is_host, _column(on_cpu)[:, None], _column(on_fpga)[:, None]),
        transfer_latency_s=np.zeros((len(devices), len(devices)), np.float32),
        transfer_s_per_byte=np.zeros((len(devices), len(devices)), np.float32),
        transfer_fixed_s=_column([edge.cost for edge in edges]),
        fusion_loss_s=np.zeros(len(edges), np.float32),
        memory_bytes=_column([node.size for node in nodes]),
        capacity_bytes=np.where(is_host, np.float32(np.inf), np.float32(capacity_bytes)),
        accelerator=accelerator,
    )
    return Workload(_graph(nodes, edges, name), costs, devices)


def _nodes(data: Any, where: str) -> list[_Node]:
    nodes = []
    for number, given in enumerate(_read(data, "nodes", where, _OBJECTS)):
        here = f"{where}, nodes[{number}]"
        id_ = _read(given, "id", here, _INTEGER)
        node = _Node(
            id=id_,
            name=_read(given, "name", here, _NAME, f"node{id_}"),
            cpu=_read(given, "cpuLatency", here, _NUMBER),
            fpga=_read(given, "fpgaLatency", here, _NUMBER),
            supported=bool(_read(given, "supportedOnFpga", here, _FLAG, True)),
            backward=bool(_read(given, "isBackwardNode", here, _FLAG, False)),
            colour=_read(given, "colorClass", here, _INTEGER, None),
            size=_read(given, "size", here, _NUMBER, 0),
        )
        nodes.append(node)
    first: dict[int, int] = {}
    for number, node in enumerate(nodes):
        if first.setdefault(node.id, number) != number:
            raise UserError(
                f"{where}, nodes[{number}]: id is {node.id}, as is that of nodes[{first[node.id]}];"
                " ids must be unique: renumber one of them"
            )
    return nodes


def _edges(data: Any, where: str, index: dict[int, int]) -> list[_Edge]:
    edges = []
    for number, given in enumerate(_read(data, "edges", where, _OBJECTS)):
        here = f"{where}, edges[{number}]"
        ends = {field: _read(given, field, here, _INTEGER) for field in ("sourceId", "destId")}
        for field, id_ in ends.items():
            if id_ not in index:
                raise UserError(
                    f"{here}: {field} is {id_}, which is no node's id; give the id of a node or "
                    "drop the edge"
                )
        edge = _Edge(
            source=index[ends["sourceId"]],
            dest=index[ends["destId"]],
            cost=_read(given, "cost", here, _NUMBER),
            size=_read(given, "size", here, _NUMBER, 0),
        )
        edges.append(edge)
    return edges


def _devices(
    data: Any, where: str, objective: str, parts: int
) -> tuple[tuple[str, ...], np.ndarray]:
    """Returns the devices' names and their `CostModel.accelerator`, int32 [D]."""
    accelerators = _read(data, "maxFPGAs", where, _COUNT)
    hosts = _read(data, "maxCPUs", where, _COUNT)
    count = accelerators * parts + (1 if objective == "subgraph" else hosts)
    if count > _MOST_DEVICES:
        raise UserError(
            f"{where} has {count} devices: maxFPGAs is {accelerators}, of {parts} parts each, and "
            f"maxCPUs {hosts}; give at most {_MOST_DEVICES} in all"
        )
    names = [f"acc{number}" for number in range(accelerators)]
    if parts > 1:
        names = [f"{name}.{part}" for name in names for part in range(parts)]
    names += ["cpu"] if objective == "subgraph" else [f"cpu{number}" for number in range(hosts)]
    if not names:
        raise UserError(f"{where} has no device: maxFPGAs and maxCPUs are 0; raise one of them")
    accelerator = np.full(len(names), -1, np.int32)
    accelerator[: accelerators * parts] = np.arange(accelerators).repeat(parts)
    return tuple(names), accelerator


def _check_supported(nodes: list[_Node], where: str) -> None:
    for number, node in enumerate(nodes):
        if not node.supported:
            raise UserError(
                f"{where}, nodes[{number}]: supportedOnFpga is false, but maxCPUs is 0, so that no "
                "device runs it; support it or raise maxCPUs"
            )


def _graph(nodes: list[_Node], edges: list[_Edge], name: str) -> OpGraph:
    first: dict[int, int] = {}  # operation by colour
    colocation = [
        op if node.colour is None else first.setdefault(node.colour, op)
        for op, node in enumerate(nodes)
    ]
    numbers: dict[tuple[int, float], int] = {}
    tensors = [numbers.setdefault((edge.source, edge.cost), len(numbers)) for edge in edges]
    tensor_bytes = np.zeros(len(numbers))
    np.maximum.at(tensor_bytes, tensors, [edge.size for edge in edges])
    try:
        return opgraph.make(
            name=name,
            op_names=_unique([node.name for node in nodes], [node.id for node in nodes]),
            op_types=["WorkloadBackward" if node.backward else "Workload" for node in nodes],
            senders=[edge.source for edge in edges],
            receivers=[edge.dest for edge in edges],
            edge_bytes=np.rint(tensor_bytes)[tensors],
            weight_bytes=np.rint([node.size for node in nodes]),
            colocation=colocation,
            tensors=tensors,
            backward=[node.backward for node in nodes],
        )
    except opgraph.InvalidGraphError as error:
        raise UserError(str(error)) from error


def _unique(names: list[str], ids: list[int]) -> list[str]:
    """Appends its id to each name that repeats."""
    # Again, as what comes out may be another's name. A name with an id appended can only meet one
    # that has none yet, so that this ends.
    while len(set(names)) < len(names):
        count = collections.Counter(names)
        names = [
            f"{name}.{id_}" if count[name] > 1 else name
            for name, id_ in zip(names, ids, strict=True)
        ]
    return names


def _column(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


class _Kind(NamedTuple):
    """What a field may hold, in words and as a test."""

    valid: str
    holds: Callable[[Any], bool]


_MOST_DEVICES = 1024  # costs are matrices of devices by devices and by operations
_LARGEST = 1e18  # fits float32 and int64
_REQUIRED = object()

_NUMBER = _Kind(
    f"a number from 0 to {_LARGEST:g}",
    lambda value: type(value) in (int, float) and 0 <= value <= _LARGEST,
)
_INTEGER = _Kind("a whole number", lambda value: type(value) is int)
_COUNT = _Kind("a whole number from 0 on", lambda value: type(value) is int and value >= 0)
_FLAG = _Kind("true, false, 0 or 1", lambda value: type(value) in (bool, int) and value in (0, 1))
_NAME = _Kind("a string", lambda value: isinstance(value, str))
_OBJECTS = _Kind(
    "a list of objects",
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
)


def _read(record: Any, field: str, where: str, kind: _Kind, default: Any = _REQUIRED) -> Any:
    """Returns a field of a JSON object, or the default where it is missing or null."""
    if not isinstance(record, dict):
        raise UserError(
            f"{where} is {reprlib.repr(record)}; give a JSON object with the field {field}, "
            f"{kind.valid}"
        )
    value = record.get(field)
    if value is None and default is not _REQUIRED:
        return default
    if value is None:
        raise UserError(f"{where} has no {field}; give {kind.valid}")
    if not kind.holds(value):
        raise UserError(f"{where}: {field} is {reprlib.repr(value)}; give {kind.valid}")
    return value
