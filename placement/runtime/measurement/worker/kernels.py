"""The kernels of a compiled model: their operations and their seconds.

The CPU plug-in runs several operations as one kernel and lists them as `originalLayersNames` of its
execution graph, but incompletely. A MatMul with a bias, for example, has the name of the addition,
and a rewritten operation has a name that the rewriting made. So operations are assigned in three
steps:

1. A kernel has the operations that it names.
2. An executed node that names no operation of the model (a Reorder, a Convert, a rewritten
   operation) belongs to the kernel that reads it, or at the model's end to the one that it reads.
3. An operation that no kernel names belongs to the kernel that all its readers belong to.
"""

from typing import NamedTuple

import openvino as ov

from placement.runtime.models.operations import constant_names

Kernels = tuple[tuple[tuple[str, ...], float], ...]  # (names of operations, seconds) of each


class Node(NamedTuple):
    """A node of an execution graph."""

    names: tuple[str, ...]  # operations of the model that it runs
    seconds: float
    sources: tuple[int, ...]  # indices of the nodes that it reads


def read_nodes(model: ov.Model, compiled: ov.CompiledModel) -> list[Node]:
    """Returns the executed nodes in order, with their mean time over all inferences so far."""
    op_names = {op.get_friendly_name() for op in model.get_ordered_ops()} - constant_names(model)
    graph = compiled.get_runtime_model().get_ordered_ops()
    index = {node.get_instance_id(): i for i, node in enumerate(graph)}
    nodes = []
    for node in graph:
        info = node.get_rt_info()
        microseconds = str(info["execTimeMcs"].astype(str))  # or 'not_executed'
        nodes.append(
            Node(
                names=split_names(str(info["originalLayersNames"].astype(str)), op_names),
                seconds=int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0,
                sources=tuple(index[v.get_node().get_instance_id()] for v in node.input_values()),
            )
        )
    return nodes


def split_names(listed: str, op_names: set[str]) -> tuple[str, ...]:
    """Returns the operations in a comma-separated list whose names may contain commas themselves.

    'a,b,c' with operations 'a' and 'b,c' is ('a', 'b,c'): the longest known name at a position
    wins.
    """
    names, pieces = [], listed.split(",")
    start = 0
    while start < len(pieces):
        for end in range(len(pieces), start, -1):
            name = ",".join(pieces[start:end])
            if name in op_names:
                names.append(name)
                start = end
                break
        else:
            start += 1
    return tuple(names)


def attribute(model: ov.Model, nodes: list[Node], unsupported: frozenset[str]) -> Kernels:
    """Returns the operations and seconds of every kernel; see the module's docstring.

    Kernels with `unsupported` operations, which ran on another device, are left out.
    """
    kernel_of: dict[str, int] = {}
    members: list[list[str]] = []  # of every kernel: its operations
    owners: list[int | None] = []  # of every node: its kernel
    for node in nodes:
        if not node.names:
            owners.append(None)
            continue
        known_kernels = [kernel_of[name] for name in node.names if name in kernel_of]
        if known_kernels:
            kernel = known_kernels[0]
        else:
            kernel = len(members)
            members.append([])
        new_names = [name for name in node.names if name not in kernel_of]
        kernel_of.update(dict.fromkeys(new_names, kernel))
        members[kernel] += new_names
        owners.append(kernel)

    # Step 2: nodes without names join a reader, in a second pass what they read.
    for i in reversed(range(len(nodes))):
        for source in nodes[i].sources:
            if owners[source] is None:
                owners[source] = owners[i]
    for i, node in enumerate(nodes):
        for source in node.sources:
            if owners[i] is None:
                owners[i] = owners[source]
    seconds = [0.0] * len(members)
    for node, owner in zip(nodes, owners, strict=True):
        if owner is not None:
            seconds[owner] += node.seconds

    # Step 3: operations without a kernel join the kernel of all their readers.
    constant = constant_names(model)
    for op in reversed(model.get_ordered_ops()):
        name = op.get_friendly_name()
        if name in kernel_of or name in constant or op.get_type_name() == "Parameter":
            continue
        readers = {
            kernel_of.get(port.get_node().get_friendly_name())
            for output in op.outputs()
            for port in output.get_target_inputs()
        }
        if len(readers) == 1 and (reader := readers.pop()) is not None:
            kernel_of[name] = reader
            members[reader].append(name)
    return tuple(
        (tuple(names), kernel_s)
        for names, kernel_s in zip(members, seconds, strict=True)
        if not unsupported.intersection(names)
    )
