"""Extraction of the project's `OpGraph` from an OpenVINO model."""

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
    """The graph of a model, and how many of its FLOPs are estimates."""

    graph: OpGraph
    # Operation type -> the number of operations whose FLOPs were estimated from the bytes they move
    # (`flops.estimate`), because the type is unknown.
    estimated: dict[str, int]


def op_graph(
    model: ov.Model,
    *,
    name: str,
    constants: bool = True,
) -> Extraction:
    """Returns the graph of a model's operations, in the order of `model.get_ordered_ops()`.

    Every input of every operation becomes an edge with the size of the tensor read. Inputs that
    read the same output have the same tensor number. An If, Loop or TensorIterator is one
    operation. Operations on constants alone run at compilation and have 0 FLOPs.

    These must share a device: a constant, or an operation on constants alone, and its first
    consumer; a Result and its producer; the sets of `colocation`, such as a ReadValue and its
    Assign.

    Args:
      model: a model with unique friendly names (`frontend.prepare`). Its dynamic dimensions count
        as `flops.dims` says.
      name: the name of the graph.
      constants: True lists every operation, and each Constant has its own bytes. False leaves out
        constants and operations on constants alone; the bytes of a Constant then belong to the
        first listed operation that reads it, directly or through such operations.

    Raises:
      InvalidGraphError: two operations have the same name.
    """
    nodes = model.get_ordered_ops()
    index = {node.get_instance_id(): i for i, node in enumerate(nodes)}
    producers: list[list[int]] = []  # of each operation, one for each of its inputs
    consumers: list[list[int]] = [[] for _ in nodes]  # of each operation, ascending
    is_constant: list[bool] = []  # the outputs are known before any request
    for i, node in enumerate(nodes):
        sources = [index[value.get_node().get_instance_id()] for value in node.input_values()]
        producers.append(sources)
        for source in dict.fromkeys(sources):
            consumers[source].append(i)
        # An operation without inputs is constant too, unless its type never is.
        can_be_constant = node.get_type_name() not in NEVER_CONSTANT
        is_constant.append(can_be_constant and all(is_constant[source] for source in sources))

    # The owner of a constant is the first operation at run time that depends on it; all other
    # operations own themselves.
    owners = np.arange(len(nodes))
    for i in reversed(range(len(nodes))):
        if is_constant[i] and consumers[i]:
            owners[i] = owners[consumers[i][0]]

    flop_counts = np.zeros(len(nodes), dtype=np.float64)
    estimated: Counter[str] = Counter()
    weight_bytes = np.zeros(len(nodes), dtype=np.int64)
    for i, node in enumerate(nodes):
        if node.get_type_name() == "Constant":
            weight_bytes[i if constants else owners[i]] += flops.num_bytes(node.output(0))
        if is_constant[i]:
            continue
        count = flops.flops(node)
        if count is None:
            estimated[node.get_type_name()] += 1
            count = flops.estimate(node)
        flop_counts[i] = count

    device_groups = np.arange(len(nodes))  # operations with equal numbers share a device
    for group in colocation.colocated_groups(model):
        device_groups[list(group)] = min(group)
    device_groups = device_groups[owners]
    for i, node in enumerate(nodes):
        if node.get_type_name() == "Result":
            device_groups[i] = device_groups[producers[i][0]]

    listed = [i for i in range(len(nodes)) if constants or not is_constant[i]]
    position = {i: k for k, i in enumerate(listed)}
    edges = [
        (position[sender], position[i], value)
        for i in listed
        for sender, value in zip(producers[i], nodes[i].input_values(), strict=True)
        if sender in position
    ]
    graph = opgraph.make_graph(
        name=name,
        op_names=tuple(nodes[i].get_friendly_name() for i in listed),
        op_types=tuple(nodes[i].get_type_name() for i in listed),
        senders=np.asarray([sender for sender, _, _ in edges], dtype=np.int32),
        receivers=np.asarray([receiver for _, receiver, _ in edges], dtype=np.int32),
        edge_bytes=np.asarray([flops.num_bytes(value) for _, _, value in edges], dtype=np.int64),
        output_shapes=tuple(
            flops.dims(nodes[i].output(0)) if nodes[i].get_output_size() else () for i in listed
        ),
        flops=flop_counts[listed],
        weight_bytes=weight_bytes[listed],
        colocation=_number_distinct(device_groups[listed].tolist()),
        tensors=_number_distinct((sender, value.get_index()) for sender, _, value in edges),
    )
    return Extraction(graph, dict(estimated))


def _number_distinct(keys: Iterable[Hashable]) -> np.ndarray:
    """Returns a number for each key, int32: 0, 1, ... in order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return np.asarray([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int32)
