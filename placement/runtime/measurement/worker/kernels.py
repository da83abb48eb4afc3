"""Which operations a device runs as one kernel, and what each kernel takes.

The plug-in runs several operations as one kernel and tells which (`originalLayersNames` of its
execution graph), but not for all: a MatMul with a bias goes by the name of the addition, and a
rewritten operation by a name of the rewriting. So, in this order,

- a kernel has the operations that it names;
- an executed node that names none of the model's (a Reorder, a Convert, a rewritten operation)
  belongs to the kernel that reads it, or at the model's end to the one that it reads;
- an operation that no kernel names belongs to the kernel that all its readers belong to.
"""

from typing import NamedTuple

import openvino as ov

from placement.runtime.models.operations import constant_names

Kernels = tuple[tuple[tuple[str, ...], float], ...]


class Node(NamedTuple):
    """A node of an execution graph."""

    names: tuple[str, ...]  # operations of the model that it runs
    seconds: float
    reads: tuple[int, ...]  # nodes


def nodes(model: ov.Model, compiled: ov.CompiledModel) -> list[Node]:
    """Returns the nodes executed, in order, with the mean time of all inferences so far."""
    known = {op.get_friendly_name() for op in model.get_ordered_ops()} - constant_names(model)
    graph = compiled.get_runtime_model().get_ordered_ops()
    index = {node.get_instance_id(): i for i, node in enumerate(graph)}
    executed = []
    for node in graph:
        info = node.get_rt_info()
        microseconds = str(info["execTimeMcs"].astype(str))  # or 'not_executed'
        executed.append(
            Node(
                names=_split(str(info["originalLayersNames"].astype(str)), known),
                seconds=int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0,
                reads=tuple(index[v.get_node().get_instance_id()] for v in node.input_values()),
            )
        )
    return executed


def _split(listed: str, known: set[str]) -> tuple[str, ...]:
    """The known names in a comma list of names that may contain commas themselves."""
    names, pieces = [], listed.split(",")
    start = 0
    while start < len(pieces):
        for end in range(len(pieces), start, -1):
            name = ",".join(pieces[start:end])
            if name in known:
                names.append(name)
                start = end
                break
        else:
            start += 1
    return tuple(names)


def attribute(model: ov.Model, nodes: list[Node], unsupported: frozenset[str]) -> Kernels:
    """Returns operations and seconds of every kernel, as the module's docstring says.

    Kernels with operations that are `unsupported`, which ran elsewhere, are left out.
    """
    kernel_of: dict[str, int] = {}
    members: list[list[str]] = []
    owner: list[int | None] = []  # of every node: its kernel
    for node in nodes:
        taken = [kernel_of[name] for name in node.names if name in kernel_of]
        new = [name for name in node.names if name not in kernel_of]
        if new and not taken:
            members.append([])
        kernel = (taken[0] if taken else len(members) - 1) if node.names else None
        for name in new:
            kernel_of[name] = len(members) - 1 if not taken else taken[0]
        if kernel is not None:
            members[kernel] += new
        owner.append(kernel)
    seconds = [0.0] * len(members)
    for node, kernel in zip(nodes, _adopted(nodes, owner), strict=True):
        if kernel is not None:
            seconds[kernel] += node.seconds
    _absorb(model, kernel_of, members)
    return tuple(
        (tuple(names), s)
        for names, s in zip(members, seconds, strict=True)
        if not unsupported.intersection(names)
    )


def timed(kernels: Kernels, latency_s: float) -> Kernels:
    """Returns kernels with equal times where the counters, of whole microseconds, saw none.

    Args:
      kernels: as counted.
      latency_s: of an inference, which the equal times sum to.
    """
    if any(seconds > 0 for _, seconds in kernels):
        return kernels
    return tuple((names, latency_s / len(kernels)) for names, _ in kernels)


def _adopted(nodes: list[Node], owner: list[int | None]) -> list[int | None]:
    """Gives nodes without a kernel that of a reader, else that of what they read."""
    adopted = list(owner)
    for i in reversed(range(len(nodes))):
        for source in nodes[i].reads:
            if adopted[source] is None:
                adopted[source] = adopted[i]
    for i, node in enumerate(nodes):
        for source in node.reads:
            if adopted[i] is None:
                adopted[i] = adopted[source]
    return adopted


def _absorb(model: ov.Model, kernel_of: dict[str, int], members: list[list[str]]) -> None:
    """Adds operations that no kernel names to the one kernel that reads them, if it is one."""
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
        if len(readers) == 1 and (kernel := readers.pop()) is not None:
            kernel_of[name] = kernel
            members[kernel].append(name)
