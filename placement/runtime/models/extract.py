"""From an OpenVINO model to the project's `OpGraph`."""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.graphs import opgraph
from placement.graphs.op_types import NEVER_CONSTANT
from placement.runtime.models import colocation, flops
from placement.types import OpGraph


class Extraction(NamedTuple):
    """A model's graph, and how much of its FLOPs are guesses."""

    graph: OpGraph
    # Operation type -> how many operations had their FLOPs estimated by the bytes they move
    # (`flops.estimate`), because the type is not known.
    estimated: dict[str, int]


class _Ops(NamedTuple):
    """The operations of a model in order, and who reads whom, by index."""

    nodes: list[ov.Node]
    producers: list[list[int]]  # of every input, in order
    consumers: list[list[int]]  # ascending
    constant: list[bool]  # the operation's outputs are known before any request


def op_graph(model: ov.Model, *, name: str, constants: bool = True) -> Extraction:
    """The graph of a model's operations, in the order of `model.get_ordered_ops()`.

    An edge for every input of every operation, of the size of the tensor read; inputs that read
    one output share a tensor number. Constants, and operations on nothing but constants, must be
    on the device of their first consumer, a Result on that of its producer, and together what
    `inseparable` lists, such as a `ReadValue` and its `Assign` (`colocation`). What is computed
    from constants alone is computed at compilation: 0 FLOPs.
    An If, Loop or TensorIterator is one operation.

    Args:
      model: a model whose friendly names are unique, see `frontend.prepare`; its dynamic
        dimensions count as `flops.dims` says.
      name: the graph's name.
      constants: True lists every operation, with the bytes of a Constant on itself. False leaves
        out what is computed from constants alone, with the bytes of a Constant on the first
        operation kept that reads it or what derives from it.

    Raises:
      InvalidGraphError: two operations have one name.
    """
    ops = _operations(model)
    kept = [i for i, constant in enumerate(ops.constant) if constants or not constant]
    position = {i: k for k, i in enumerate(kept)}
    edges = [
        (position[sender], position[i], source)
        for i in kept
        for sender, source in zip(ops.producers[i], ops.nodes[i].input_values(), strict=True)
        if sender in position
    ]
    work, estimated = _flops(ops)
    graph = opgraph.make(
        name=name,
        op_names=tuple(ops.nodes[i].get_friendly_name() for i in kept),
        op_types=tuple(ops.nodes[i].get_type_name() for i in kept),
        senders=np.asarray([sender for sender, _, _ in edges], dtype=np.int32),
        receivers=np.asarray([receiver for _, receiver, _ in edges], dtype=np.int32),
        edge_bytes=np.asarray([flops.num_bytes(source) for _, _, source in edges], dtype=np.int64),
        output_shapes=tuple(_output_shape(ops.nodes[i]) for i in kept),
        flops=work[kept],
        weight_bytes=_weight_bytes(ops, move=not constants)[kept],
        colocation=_renumbered(_colocation(ops, colocation.groups(model))[kept].tolist()),
        tensors=_renumbered((sender, source.get_index()) for sender, _, source in edges),
    )
    return Extraction(graph, estimated)


def _operations(model: ov.Model) -> _Ops:
    nodes = model.get_ordered_ops()
    index = {node.get_instance_id(): i for i, node in enumerate(nodes)}
    producers: list[list[int]] = []
    consumers: list[list[int]] = [[] for _ in nodes]
    constant: list[bool] = []
    for i, node in enumerate(nodes):
        read = [index[source.get_node().get_instance_id()] for source in node.input_values()]
        producers.append(read)
        for sender in dict.fromkeys(read):
            consumers[sender].append(i)
        # An operation without inputs is a constant too: all() of nothing.
        never = node.get_type_name() in NEVER_CONSTANT
        constant.append(not never and all(constant[sender] for sender in read))
    return _Ops(nodes, producers, consumers, constant)


def _output_shape(node: ov.Node) -> tuple[int, ...]:
    return flops.dims(node.output(0)) if node.get_output_size() else ()


def _flops(ops: _Ops) -> tuple[np.ndarray, dict[str, int]]:
    """FLOPs float64 [N], and how many operations of which type were estimated."""
    work = np.zeros(len(ops.nodes), dtype=np.float64)
    estimated: Counter[str] = Counter()
    for i, node in enumerate(ops.nodes):
        if ops.constant[i]:
            continue
        known = flops.flops(node)
        if known is None:
            estimated[node.get_type_name()] += 1
        work[i] = flops.estimate(node) if known is None else known
    return work, dict(estimated)


def _owners(ops: _Ops) -> np.ndarray:
    """int64 [N]: itself, or of a constant the first operation at run time that depends on it."""
    owners = np.arange(len(ops.nodes))
    for i in reversed(range(len(ops.nodes))):
        if ops.constant[i] and ops.consumers[i]:
            owners[i] = owners[ops.consumers[i][0]]
    return owners


def _weight_bytes(ops: _Ops, *, move: bool) -> np.ndarray:
    """int64 [N]: bytes of Constants, on themselves or, moved, on their owners."""
    weight_bytes = np.zeros(len(ops.nodes), dtype=np.int64)
    for i, owner in enumerate(_owners(ops)):
        if ops.nodes[i].get_type_name() == "Constant":
            weight_bytes[owner if move else i] += flops.num_bytes(ops.nodes[i].output(0))
    return weight_bytes


def _colocation(ops: _Ops, together: list[frozenset[int]]) -> np.ndarray:
    """int64 [N]: equal numbers share a device."""
    groups = np.arange(len(ops.nodes))
    for members in together:
        groups[list(members)] = min(members)
    groups = groups[_owners(ops)]
    for i, node in enumerate(ops.nodes):
        if node.get_type_name() == "Result":
            groups[i] = groups[ops.producers[i][0]]
    return groups


def _renumbered(keys: Iterable[Hashable]) -> np.ndarray:
    """int32, as long as `keys`: equal for equal keys, 0, 1, ... in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return np.asarray([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int32)
