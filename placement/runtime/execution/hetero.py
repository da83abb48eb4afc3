"""A placement as OpenVINO runs it: HETERO with a device label on every operation.

All candidates are compiled in one way, single devices included: through HETERO, with the devices'
properties inside DEVICE_PROPERTIES, the only place where HETERO does not override them.

HETERO accepts every placement of static models. Where the quotient graph of a placement has cycles
(part A feeds part B, which feeds A again) it splits parts until there are none, so that submodels
outnumber parts; it also merges a Result into its producer's submodel whatever its label.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import openvino as ov
from openvino import opset13

from placement.errors import UserError
from placement.runtime.devices import Device
from placement.runtime.models import colocation
from placement.runtime.models.operations import constant_names

if TYPE_CHECKING:  # it loads JAX, which the process that measures does without
    from placement.types import OpGraph

Affinity = Mapping[str, str]  # friendly name of an operation -> name of its device


class Quotient(NamedTuple):
    """What a placement makes of a graph, constants left aside."""

    parts: int  # connected sets of operations on one device
    acyclic: bool  # whether the parts can run one after another, each once


def compile_placement(
    core: ov.Core, model: ov.Model, affinity: Affinity | None, devices: Sequence[Device]
) -> ov.CompiledModel:
    """Compiles `model` so that every operation runs where `affinity` says.

    Args:
      core: knows the devices, see `devices.open_core`.
      model: static, folded, with unique friendly names (`frontend.prepare`); left as it is.
      affinity: a device for every operation but those computed from constants, which always are
        where they are read (on each device that reads them), and Results, which default to their
        producer's device. None leaves the choice to HETERO; with one device it compiles for that
        device directly.
      devices: what the affinity may name, in HETERO's order of preference.

    Raises:
      UserError: the affinity misses an operation, names one that the model lacks or a device that
        is not among `devices`, or separates what is `inseparable`.
      RuntimeError: OpenVINO's own.
    """
    if affinity is None and len(devices) == 1:
        return core.compile_model(model, devices[0].name, dict(devices[0].properties))
    names = [device.name for device in devices]
    config = {"DEVICE_PROPERTIES": {device.name: dict(device.properties) for device in devices}}
    labelled = model if affinity is None else label(model, affinity, names)
    return core.compile_model(labelled, f"HETERO:{','.join(names)}", config)


def label(model: ov.Model, affinity: Affinity, names: Sequence[str]) -> ov.Model:
    """A clone of `model` with a device on every operation, as `compile_placement` describes.

    Every part has constants of its own: to HETERO, what reads one constant on one device is
    connected, so that a scalar read everywhere closes cycles and has hundreds of submodels made of
    a few parts. A clone does not copy weights, and neither do these copies.
    """
    _check(model, affinity, names)
    clone = model.clone()
    constant = constant_names(clone)
    devices = _devices(clone, affinity, constant, names[0])
    parts = _parts(clone, devices)
    _refuse_split_variables(clone, parts)
    shared = _shared_constants(clone, constant, parts)
    reading: dict[str, list[ov.Input]] = {}
    for op in clone.get_ordered_ops():
        name = op.get_friendly_name()
        if name in devices:
            _set(op, devices[name])
            reading.setdefault(parts[name], []).extend(
                port for port in op.inputs() if _source(port).get_friendly_name() in constant
            )
    for part, ports in reading.items():
        own = _copies(
            [_source(port) for port in ports if _source(port).get_friendly_name() in shared]
        )
        for port in ports:
            read = port.get_source_output()
            if read.get_node().get_friendly_name() in own:
                node = own[read.get_node().get_friendly_name()]
                port.replace_source_output(node.output(read.get_index()))
            _label_constants(_source(port), devices[part], renamed=devices[part] != names[0])
    return clone


def quotient(graph: "OpGraph", affinity: Affinity) -> Quotient:
    """How many parts `affinity` cuts a graph into, and whether they depend on each other in cycles.

    Args:
      graph: of the model, without constants (`extract.op_graph(..., constants=False)`).
      affinity: as `compile_placement` accepts it.
    """
    import numpy as np

    from placement.graphs import dag

    numbers = {device: i for i, device in enumerate(sorted(set(affinity.values())))}
    placement = np.array([numbers.get(affinity.get(name, ""), -1) for name in graph.op_names])
    for sender, receiver in zip(graph.senders, graph.receivers, strict=True):
        if placement[receiver] < 0:
            placement[receiver] = placement[sender]
    parts = dag.connected_parts(graph, placement)
    count = len(set(parts.tolist()))
    edges = dag.quotient(graph.senders, graph.receivers, parts)
    return Quotient(count, dag.is_acyclic(count, *edges))


def _check(model: ov.Model, affinity: Affinity, names: Sequence[str]) -> None:
    ops = _by_name(model)
    unknown = [name for name in affinity if name not in ops]
    if unknown:
        raise UserError(f"the placement names {_few(unknown)}, not operations of the model")
    strange = {device for device in affinity.values() if device not in names}
    if strange:
        raise UserError(f"the placement uses {_few(strange)}; its devices are {', '.join(names)}")
    constant = constant_names(model)
    missing = [
        name
        for name, op in ops.items()
        if name not in affinity and name not in constant and op.get_type_name() != "Result"
    ]
    if missing:
        raise UserError(
            f"the placement has no device for {_few(missing)}; give every operation one"
        )
    for group in colocation.groups(model):
        listed = [name for i, name in enumerate(ops) if i in group and name in affinity]
        if len({affinity[name] for name in listed}) > 1:
            raise UserError(
                f"the placement separates {_few(listed)}, which HETERO runs right only together; "
                "put them on one device"
            )


def _devices(
    model: ov.Model, affinity: Affinity, constant: frozenset[str], otherwise: str
) -> dict[str, str]:
    """The device of every operation that is not constant."""
    devices: dict[str, str] = {}
    for op in model.get_ordered_ops():
        name = op.get_friendly_name()
        if name not in constant:
            producer = _source(op.input(0)).get_friendly_name() if op.inputs() else ""
            devices[name] = affinity.get(name) or affinity.get(producer, otherwise)
    return devices


def _parts(model: ov.Model, devices: Mapping[str, str]) -> dict[str, str]:
    """Of every operation listed, an operation that stands for its connected part of one device."""
    parent = {name: name for name in devices}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for sender, receiver in _edges(model, devices):
        if devices[sender] == devices[receiver]:
            parent[root(receiver)] = root(sender)
    return {name: root(name) for name in devices}


def _edges(model: ov.Model, listed: Container[str]) -> list[tuple[str, str]]:
    """Producer and reader of every tensor between operations that are listed."""
    edges = [
        (_source(port).get_friendly_name(), op.get_friendly_name())
        for op in model.get_ordered_ops()
        for port in op.inputs()
    ]
    return [edge for edge in edges if edge[0] in listed and edge[1] in listed]


def _refuse_split_variables(model: ov.Model, parts: Mapping[str, str]) -> None:
    """Refuses that a part with a variable depends on itself through another part.

    HETERO would split it, and read a variable in one submodel that it writes in another.

    Raises:
      UserError: it does.
    """
    stateful = [op for op in model.get_ordered_ops() if op.get_type_name() == "Assign"]
    if not stateful:
        return
    # Few models have variables, and these imports would take half of a worker's start-up time.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    numbers = {part: i for i, part in enumerate(dict.fromkeys(parts.values()))}
    edges = [(numbers[parts[a]], numbers[parts[b]]) for a, b in _edges(model, parts)]
    rows, columns = zip(*edges, strict=True)
    matrix = coo_array(([1] * len(edges), (rows, columns)), (len(numbers), len(numbers)))
    cycles = connected_components(matrix, connection="strong")[1].tolist()
    for op in stateful:
        if cycles.count(cycles[numbers[parts[op.get_friendly_name()]]]) > 1:
            variable = op.get_attributes()["variable_id"]
            raise UserError(
                f"the part of the model with variable {variable!r} depends on itself through "
                "another device, so that HETERO would split it; put what is between there too"
            )


def _shared_constants(
    model: ov.Model, constant: frozenset[str], parts: Mapping[str, str]
) -> frozenset[str]:
    """Names of the constants that, or of which sources, are read by several parts."""
    ops = model.get_ordered_ops()
    readers: dict[str, set[str]] = {name: set() for name in constant}
    for op in reversed(ops):
        name = op.get_friendly_name()
        for port in op.inputs():
            source = _source(port).get_friendly_name()
            if source in constant:
                readers[source] |= readers[name] if name in constant else {parts[name]}
    shared: set[str] = set()
    for op in ops:
        name = op.get_friendly_name()
        sources = (source.get_node().get_friendly_name() for source in op.input_values())
        if name in constant and (len(readers[name]) > 1 or any(s in shared for s in sources)):
            shared.add(name)
    return frozenset(shared)


def _copies(constants: Sequence[ov.Node]) -> dict[str, ov.Node]:
    """Copies of constant operations with all that they are computed from, by name."""
    if not constants:
        return {}
    unique = {op.get_friendly_name(): op for op in constants}
    outputs = [output for op in unique.values() for output in op.outputs()]
    results = [opset13.result(output) for output in outputs]
    return _by_name(ov.Model(results, [], "constants").clone())


def _source(port: ov.Input) -> ov.Node:
    return port.get_source_output().get_node()


def _few(names: Iterable[str]) -> str:
    """'a', 'b' and 7 more."""
    listed = [repr(name) for name in names]
    more = f" and {len(listed) - 2} more" if len(listed) > 2 else ""
    return ", ".join(listed[:2]) + more


def _by_name(model: ov.Model) -> dict[str, ov.Node]:
    return {op.get_friendly_name(): op for op in model.get_ordered_ops()}


def _set(op: ov.Node, device: str) -> None:
    op.get_rt_info()["affinity"] = device


def _label_constants(op: ov.Node, device: str, *, renamed: bool) -> None:
    """Labels a constant operation and all that it is computed from."""
    if "affinity" in op.get_rt_info():
        return
    _set(op, device)
    if renamed:
        op.set_friendly_name(f"{op.get_friendly_name()}@{device}")
    for source in op.input_values():
        _label_constants(source.get_node(), device, renamed=renamed)
