"""The operations that a device cannot run, and why.

OpenVINO's `query_model` says which operations a device runs, but gives no reason. So each other
operation is compiled on the device as a separate model, and the reason is OpenVINO's error.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import openvino as ov
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime.errors import summarise_error
from placement.runtime.models.operations import computed_names

SCHEMA = {"device": str, "name": str, "op_type": str, "inputs": str, "reason": str}
_NO_REASON = "OpenVINO gives no reason: alone, the operation compiles"


class UnsupportedOp(NamedTuple):
    """An operation that a device cannot run."""

    device: str  # its name
    name: str  # of the operation
    op_type: str
    inputs: str  # precision and shape of each, such as 'f32[1,3,8,8], i64[2]'
    reason: str  # in one line


def list_unsupported(core: Any, model: ov.Model, device: str) -> list[str]:
    """Returns the names of the operations that a device cannot run, in order.

    Constants are left out, and so are a model's inputs and outputs, which compute nothing. `core`
    knows the device, and the names in the model are unique.
    """
    supported = core.query_model(model, device)
    return [name for name in computed_names(model) if name not in supported]


def explain(core: Any, model: ov.Model, device: str, names: Iterable[str]) -> list[UnsupportedOp]:
    """Returns the reason for each of the operations with the given names, in the model's order.

    Operations are compiled once if their types, inputs and attributes are equal.
    """
    selected_names, reasons = frozenset(names), dict[tuple[str, str, str], str]()
    explained = []
    for op in model.clone().get_ordered_ops():
        if op.get_friendly_name() not in selected_names:
            continue
        inputs = ", ".join(
            f"{port.get_element_type().get_type_name()}{port.get_partial_shape()}"
            for port in op.inputs()
        )
        key = op.get_type_name(), inputs, str(op.get_attributes())
        if key not in reasons:
            # Cut the operation off its model. Constant inputs stay, because support may depend on
            # their values.
            parameters = []
            for port in op.inputs():
                if port.get_source_output().get_node().get_type_name() != "Constant":
                    shape, element_type = port.get_partial_shape(), port.get_element_type()
                    parameters.append(ops.parameter(shape, element_type))
                    port.replace_source_output(parameters[-1].output(0))
            try:
                results = [ops.result(output) for output in op.outputs()]
                core.compile_model(ov.Model(results, parameters, "alone"), device)
                reasons[key] = _NO_REASON
            except RuntimeError as error:
                reasons[key] = summarise_error(error)
        explained.append(
            UnsupportedOp(device, op.get_friendly_name(), op.get_type_name(), inputs, reasons[key])
        )
    return explained


def survey(model: ov.Model) -> dict[str, list[UnsupportedOp]]:
    """Returns for each device of this machine the operations of a model that it cannot run.

    Raises:
      UserError: OpenVINO cannot compile the model for a device.
    """
    core, unsupported = ov.Core(), dict[str, list[UnsupportedOp]]()
    for device in core.available_devices:
        try:
            names = list_unsupported(core, model, device)
        except RuntimeError as error:
            raise UserError(
                f"OpenVINO cannot compile the model for {device}: {summarise_error(error)}; change "
                "that part of it and export it again"
            ) from error
        unsupported[device] = explain(core, model, device, names)
    return unsupported
