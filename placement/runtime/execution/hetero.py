"""Placements as OpenVINO's HETERO runs them: a device label on every operation.

All candidates are compiled in the same way, single devices included: through HETERO, with each
device's properties inside DEVICE_PROPERTIES. This is the only place where HETERO does not override
them: once a model has several submodels, HETERO otherwise ignores the number of threads. The only
exception is a placement on one CPU in two precisions, which is one program of the CPU plug-in
(`mixed_precision`).

HETERO accepts every placement of a static model. Its connected parts on one device can depend on
each other in cycles (part A feeds part B, which feeds A again). HETERO then splits parts until no
cycle is left, so that submodels can outnumber parts. HETERO also merges a Result into the submodel
of its producer, whatever the Result's label.
"""

from collections.abc import Mapping, Sequence

import openvino as ov
from openvino import opset13

from placement.errors import UserError
from placement.runtime.devices import Device
from placement.runtime.execution import mixed_precision
from placement.runtime.models import colocation
from placement.runtime.models.fingerprint import quote_names
from placement.runtime.models.operations import constant_names, ops_by_name, source_name

Affinity = Mapping[str, str]  # friendly name of an operation -> name of its device


def compile_placement(
    core: ov.Core, model: ov.Model, affinity: Affinity | None, devices: Sequence[Device]
) -> ov.CompiledModel:
    """Compiles `model` so that every operation runs on the device that `affinity` gives it.

    Args:
      core: an OpenVINO core that knows the devices (`devices.register_devices`).
      model: a static, folded model with unique friendly names (`frontend.prepare`). It is not
        changed.
      affinity: a device for every operation. Operations computed from constants may be missing:
        they always run on each device that reads them. So may Results, which default to their
        producer's device. None leaves the choice to HETERO, or compiles directly for the device
        if there is only one.
      devices: the devices that the affinity may name, in HETERO's order of preference.

    Raises:
      UserError: the affinity misses an operation, names one that the model lacks, names a device
        that is not among `devices`, or separates operations that belong together (`colocation`).
      OSError: the temporary files of a model in two precisions cannot be written.
      RuntimeError: OpenVINO cannot compile the model.
    """
    if affinity is None and len(devices) == 1:
        return core.compile_model(model, devices[0].name, dict(devices[0].properties))
    device_names = [device.name for device in devices]
    if affinity is not None:
        used = [device for device in devices if device.name in affinity.values()]
        coarse = mixed_precision.find_coarse_device(used)
        if coarse is not None:
            _validate_affinity(model, affinity, device_names)
            kept = [op for op, name in affinity.items() if name != coarse.name]
            mixed = mixed_precision.keep_in_f32(core, model, kept)
            return core.compile_model(mixed, coarse.name, dict(coarse.properties))
    config = {"DEVICE_PROPERTIES": {device.name: dict(device.properties) for device in devices}}
    labelled = model if affinity is None else label_devices(model, affinity, device_names)
    return core.compile_model(labelled, f"HETERO:{','.join(device_names)}", config)


def label_devices(model: ov.Model, affinity: Affinity, names: Sequence[str]) -> ov.Model:
    """Returns a clone of `model` with a device label on every operation (`compile_placement`).

    A part is a connected set of operations on one device. Every part gets its own copies of the
    constants that it reads. HETERO counts operations that read one constant on one device as
    connected, so that a scalar that is read everywhere would connect distant parts, close cycles,
    and turn a few parts into hundreds of submodels. Neither a clone nor these copies duplicate the
    weights in memory. `names` has the devices in HETERO's order of preference.
    """
    _validate_affinity(model, affinity, names)
    clone = model.clone()
    constants = constant_names(clone)
    computed = {name: op for name, op in ops_by_name(clone).items() if name not in constants}
    devices: dict[str, str] = {}
    for name, op in computed.items():
        producer = source_name(op.input(0)) if op.inputs() else ""
        devices[name] = affinity.get(name) or affinity.get(producer, names[0])

    edges = [
        (source_name(port), name)
        for name, op in computed.items()
        for port in op.inputs()
        if source_name(port) in computed
    ]
    connected = [frozenset(edge) for edge in edges if devices[edge[0]] == devices[edge[1]]]
    singletons = [frozenset((name,)) for name in computed]
    parts = colocation.merge_overlapping(singletons + connected)
    part_of = {name: number for number, part in enumerate(parts) for name in part}

    # HETERO splits a part that depends on itself through another part, and could then read a
    # variable in another submodel than the one that writes it.
    assign_ops = {name: op for name, op in computed.items() if op.get_type_name() == "Assign"}
    if assign_ops:
        # Few models have variables, and these imports would take half of a worker's start-up time.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        rows, columns = zip(*((part_of[a], part_of[b]) for a, b in edges), strict=True)
        adjacency = coo_array(([1] * len(edges), (rows, columns)), (len(parts), len(parts)))
        # Parts on a common cycle are one strongly connected component.
        components = connected_components(adjacency, connection="strong")[1].tolist()
        for name, op in assign_ops.items():
            if components.count(components[part_of[name]]) > 1:
                variable = op.get_attributes()["variable_id"]
                raise UserError(
                    f"the part of the model with variable {variable!r} depends on itself through "
                    "another device, so that HETERO would split it; put the operations between its "
                    "halves on the same device"
                )

    for name, op in computed.items():
        op.get_rt_info()["affinity"] = devices[name]
    for part in parts:
        ports = [port for name in sorted(part) for port in computed[name].inputs()]
        ports = [port for port in ports if source_name(port) in constants]
        if not ports:
            continue
        device = devices[min(part)]
        originals = {source_name(port): port.get_source_output().get_node() for port in ports}
        # Cloning a model whose outputs are the constants copies all that computes them, too.
        results = [opset13.result(output) for op in originals.values() for output in op.outputs()]
        copies = ops_by_name(ov.Model(results, [], "constants").clone())
        for port in ports:
            index = port.get_source_output().get_index()
            port.replace_source_output(copies[source_name(port)].output(index))
        for name, op in copies.items():
            op.get_rt_info()["affinity"] = device
            if device != names[0]:  # the operations of another device may have the same names
                op.set_friendly_name(f"{name}@{device}")
    return clone


def _validate_affinity(model: ov.Model, affinity: Affinity, device_names: Sequence[str]) -> None:
    """Raises a UserError if an affinity does not fit the model or the devices."""
    ops = ops_by_name(model)
    unknown_ops = [name for name in affinity if name not in ops]
    if unknown_ops:
        raise UserError(
            f"the placement names {quote_names(unknown_ops)}, not operations of the model"
        )
    # HETERO itself would accept any device that is registered, even if it is not listed.
    unknown_devices = {device for device in affinity.values() if device not in device_names}
    if unknown_devices:
        raise UserError(
            f"the placement uses {quote_names(unknown_devices)}; "
            f"its devices are {', '.join(device_names)}"
        )
    constants = constant_names(model)
    missing_ops = [
        name
        for name, op in ops.items()
        if name not in affinity and name not in constants and op.get_type_name() != "Result"
    ]
    if missing_ops:
        raise UserError(
            f"the placement has no device for {quote_names(missing_ops)}; name one for each"
        )
    for group in colocation.colocated_groups(model):
        members = [name for i, name in enumerate(ops) if i in group and name in affinity]
        if len({affinity[name] for name in members}) > 1:
            raise UserError(
                f"the placement separates {quote_names(members)}, which HETERO runs correctly only "
                "together; put them on one device"
            )
