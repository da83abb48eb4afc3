"""A placement as OpenVINO runs it: HETERO with a device label on every operation.

All candidates are compiled in one way, single devices included: through HETERO, with the devices'
properties inside DEVICE_PROPERTIES, the only place where HETERO does not override them.

HETERO accepts every placement of static models. Where the quotient graph of a placement has cycles
(part A feeds part B, which feeds A again) it splits parts until there are none, so that submodels
outnumber parts; it also merges a Result into its producer's submodel whatever its label.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import openvino as ov

from placement.runtime.devices import Device

if TYPE_CHECKING:  # it loads JAX, which the process that measures does without
    from placement.types import OpGraph

Affinity = Mapping[str, str]  # friendly name of an operation -> name of its device

_NEVER_CONSTANT = frozenset(
    {"Parameter", "Result", "ReadValue", "Assign", "RandomUniform", "Multinomial"}
)


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
      ValueError: the affinity misses an operation, names one that the model lacks or a device that
        is not among `devices`, or separates an Assign from its ReadValue.
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

    A clone does not copy weights, and neither does giving each device constants of its own.
    """
    _check(model, affinity, names)
    clone = model.clone()
    constant = constant_names(clone)
    # Each device reads the constants of a clone of its own; the first those of this one.
    constants = {names[0]: _by_name(clone)}
    for op in clone.get_ordered_ops():
        if op.get_friendly_name() in constant:
            continue
        producer = op.input_value(0).get_node().get_friendly_name() if op.inputs() else ""
        device = affinity.get(op.get_friendly_name()) or affinity.get(producer, names[0])
        _set(op, device)
        if device not in constants:
            constants[device] = _by_name(model.clone())
        for port in op.inputs():
            read = port.get_source_output()
            name = read.get_node().get_friendly_name()
            if name in constant:
                own = constants[device][name]
                port.replace_source_output(own.output(read.get_index()))
                _label_constants(own, device, renamed=device != names[0])
    return clone


def constant_names(model: ov.Model) -> frozenset[str]:
    """Names of the operations whose outputs are known before any request."""
    names: set[str] = set()
    for op in model.get_ordered_ops():
        inputs = (source.get_node().get_friendly_name() for source in op.input_values())
        if op.get_type_name() not in _NEVER_CONSTANT and all(name in names for name in inputs):
            names.add(op.get_friendly_name())
    return frozenset(names)


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
    return Quotient(count, dag.is_acyclic(count, *dag.quotient(graph, parts)))


def _check(model: ov.Model, affinity: Affinity, names: Sequence[str]) -> None:
    ops = _by_name(model)
    unknown = [name for name in affinity if name not in ops]
    if unknown:
        raise ValueError(f"the placement names {_few(unknown)}, not operations of the model")
    strange = {device for device in affinity.values() if device not in names}
    if strange:
        raise ValueError(f"the placement uses {_few(strange)}; its devices are {', '.join(names)}")
    constant = constant_names(model)
    missing = [
        name
        for name, op in ops.items()
        if name not in affinity and name not in constant and op.get_type_name() != "Result"
    ]
    if missing:
        raise ValueError(
            f"the placement has no device for {_few(missing)}; give every operation one"
        )
    variables: dict[str, str] = {}
    for name, op in ops.items():
        if op.get_type_name() in ("ReadValue", "Assign"):
            variable = op.get_attributes()["variable_id"]
            if variables.setdefault(variable, affinity[name]) != affinity[name]:
                raise ValueError(
                    f"the placement separates the operations of variable {variable!r}; "
                    "put its ReadValue and Assign on one device"
                )


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
