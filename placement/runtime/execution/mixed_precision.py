"""Placements on one CPU in two precisions, as a single program of the CPU plug-in.

The plug-in computes a model in a coarser precision except for operations with the attribute
`DisablePrecisionConversion`, which keep f32. Compared with HETERO this needs no submodels, so that
a change of precision costs no more than the conversion of a tensor. The Python interface cannot
set the attribute, but model files hold it.

The plug-in's transformations drop the attribute from operations that they replace. Most of these
transformations are OpenVINO's common ones. They run here first, and the attributes come afterwards,
on what has become of each operation. Some others are avoided: `_replace` gives the plug-in marked
operations in a form that it keeps. Operations that it replaces in any form, such as RMS
normalisation, attention and Tile, are not kept in f32.
"""

import math
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Collection
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset1, opset8
from openvino._offline_transformations import apply_moc_transformations

from placement.runtime.devices import Device, is_cpu
from placement.runtime.models import serialization
from placement.runtime.models.operations import constant_names, ops_by_name, source_name

_HINT = "INFERENCE_PRECISION_HINT"
_FUSED_NAMES = "fused_names_0"
_MERGING = ("Convolution", "GroupConvolution", "MatMul")
_COMMUTATIVE = {"Add": opset1.add, "Multiply": opset1.multiply}
# `dynamic` stands for every precision that an operation may have.
_KEEP_F32 = {"name": "DisablePrecisionConversion", "version": "0", "value": "dynamic:f16"}
_KEPT_KEY = "DisablePrecisionConversion_0"  # the same in the runtime information


def find_coarse_device(devices: Collection[Device]) -> Device | None:
    """Returns the device of the coarser precision if the devices are one CPU in f32 and in it."""
    is_one_cpu = all(
        is_cpu(device) and device.core is None and not device.cores for device in devices
    )
    others = {tuple(sorted({**device.properties, _HINT: ""}.items())) for device in devices}
    coarse = [device for device in devices if device.precision != "f32"]
    if len(devices) != 2 or len(coarse) != 1 or not is_one_cpu or len(others) != 1:
        return None
    return coarse[0]


def keep_in_f32(core: ov.Core, model: ov.Model, names: Collection[str]) -> ov.Model:
    """Returns a transformed model in which the named operations keep f32.

    An operation that OpenVINO has merged from several ones keeps f32 if one of them does.

    Args:
      core: reads the model.
      model: from `frontend.prepare`; it is not changed.
      names: operations that are not computed from constants.

    Raises:
      OSError: there is no space for the model's temporary files.
      RuntimeError: OpenVINO cannot transform the model.
    """
    transformed, origins = _transform(model)
    kept = _spread(model, set(names), set[str]().union(*origins.values()))
    marked = {name for name, merged in origins.items() if not merged.isdisjoint(kept)}
    _join_sums(transformed, marked)
    marked |= _replace(transformed, marked)
    # The model maps the weights' file, which Windows does not remove before the model is gone.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        serialization.write_model(transformed, Path(folder))
        xml, weights = (Path(folder) / name for name in (serialization.XML, serialization.WEIGHTS))
        tree = ET.parse(xml)
        for layer in tree.getroot().iterfind("layers/layer"):
            if layer.get("name") in marked:
                _mark(layer)
        tree.write(xml)
        return core.read_model(xml, weights)


def list_kept(model: ov.Model) -> frozenset[str]:
    """Returns the operations that keep f32 in a model from `keep_in_f32`, or in its file."""
    return frozenset(
        op.get_friendly_name() for op in model.get_ops() if _KEPT_KEY in op.get_rt_info()
    )


def _transform(model: ov.Model) -> tuple[ov.Model, dict[str, frozenset[str]]]:
    """Applies OpenVINO's common transformations.

    Returns:
      A transformed clone, and for each of its operations the names of those of the model that it
      was merged from. Constants and inputs have none.
    """
    clone = model.clone()
    original_names: dict[str, str] = {}
    # Names may contain the comma that separates them in the runtime information: number them.
    for number, op in enumerate(clone.get_ordered_ops()):
        if _FUSED_NAMES in op.get_rt_info():
            del op.get_rt_info()[_FUSED_NAMES]
        if op.get_type_name() not in ("Parameter", "Result"):
            original_names[f"op{number}"] = op.get_friendly_name()
            op.set_friendly_name(f"op{number}")
    apply_moc_transformations(clone, cf=False)
    origins: dict[str, frozenset[str]] = {}
    for number, op in enumerate(clone.get_ordered_ops()):
        info = op.get_rt_info()
        merged = info[_FUSED_NAMES].astype(str).split(",") if _FUSED_NAMES in info else []
        if op.get_type_name() in ("Parameter", "Result", "Constant"):
            continue
        name = original_names.get(op.get_friendly_name(), op.get_friendly_name())
        op.set_friendly_name(f"{name}#{number}")  # unique
        origins[op.get_friendly_name()] = frozenset(
            original_names[part] for part in merged if part in original_names
        )
    return clone, origins


def _spread(model: ov.Model, names: set[str], known: Collection[str]) -> set[str]:
    """Adds the readers of named operations that the transformations replaced without a trace."""
    kept = names - {parameter.get_friendly_name() for parameter in model.get_parameters()}
    constants = constant_names(model)
    for name, op in ops_by_name(model).items():  # in topological order
        sources = {source_name(port) for port in op.inputs()} - constants
        if any(source in kept and source not in known for source in sources):
            kept.add(name)
    return kept


def _join_sums(model: ov.Model, marked: set[str]) -> None:
    """Marks the sums that the plug-in merges with a marked convolution.

    It adds the second tensor in place where the convolution writes, so that both need one
    precision. OpenVINO 2026.4 refuses to compile them otherwise.
    """
    constants = constant_names(model)
    for name, op in ops_by_name(model).items():
        sources = [port.get_source_output().get_node() for port in op.inputs()]
        if op.get_type_name() != "Add" or any(s.get_friendly_name() in constants for s in sources):
            continue
        for source in sources:
            # From the sum through operations with one input, such as the addition of a bias.
            while len(source.output(0).get_target_inputs()) == 1:
                if source.get_type_name() in _MERGING:
                    if source.get_friendly_name() in marked:
                        marked.add(name)
                    break
                inputs = [p for p in source.inputs() if source_name(p) not in constants]
                if len(inputs) != 1:
                    break
                source = inputs[0].get_source_output().get_node()


def _replace(model: ov.Model, marked: Collection[str]) -> set[str]:
    """Replaces marked operations that the plug-in would replace without their attribute.

    - Gather, MaxPool and Softmax become the version that the plug-in uses, and Squeeze and
      Unsqueeze become Reshape.
    - The plug-in replaces a product whose second factor is constant. So the constant becomes the
      first factor: A B = (B^T A^T)^T, which takes about the same time.
    - The plug-in moves the addition or the multiplication of one number in front of a Gather or a
      Reshape, which then lose their attribute. It does not if the number is the first operand.

    Returns:
      The names of operations that this adds.
    """
    constants = constant_names(model)
    added = set()
    for name, op in ops_by_name(model).items():
        if name not in marked:
            continue
        kind, attributes = op.get_type_name(), op.get_attributes()
        sources = [port.get_source_output() for port in op.inputs()]
        ranks = [len(source.partial_shape) for source in sources]
        has_constant = len(sources) == 2 and source_name(op.input(1)) in constants
        if kind == "Gather":
            replacement = opset8.gather(*sources, attributes.get("batch_dims", 0))
        elif kind in ("Squeeze", "Unsqueeze") and op.output(0).partial_shape.is_static:
            replacement = opset1.reshape(sources[0], np.array(op.output(0).shape), False)
        elif kind in _COMMUTATIVE and has_constant and math.prod(op.input(1).get_shape()) == 1:
            replacement = _COMMUTATIVE[kind](*sources[::-1])
        elif kind == "Softmax":
            replacement = opset1.softmax(sources[0], attributes["axis"] % ranks[0])
        elif kind == "MaxPool" and _fits_opset1(op):
            pool = (attributes[key] for key in ("strides", "pads_begin", "pads_end", "kernel"))
            modes = attributes["rounding_type"], attributes["auto_pad"]
            replacement = opset1.max_pool(sources[0], *pool, *modes)
        elif kind == "MatMul" and has_constant and min(ranks) > 1:
            factors = sources[1], sources[0]
            transposes = not attributes["transpose_b"], not attributes["transpose_a"]
            product = opset1.matmul(*factors, *transposes)
            product.set_friendly_name(f"{name}/transposed")
            added.add(product.get_friendly_name())
            *batch, row, column = range(max(ranks))
            replacement = opset1.transpose(product, np.array([*batch, column, row]))
        else:
            continue
        op.output(0).replace(replacement.output(0))
        replacement.set_friendly_name(name)
    return added


def _fits_opset1(pool: ov.Node) -> bool:
    """Returns whether a MaxPool has no dilations and no readers of its indices, as in opset 1."""
    attributes = pool.get_attributes()
    return (
        {*attributes.get("dilations", [1])} == {1}
        and attributes["rounding_type"] in ("floor", "ceil")
        and not any(output.get_target_inputs() for output in pool.outputs()[1:])
    )


def _mark(layer: ET.Element) -> None:
    """Adds the attribute to an operation of a model file."""
    info = layer.find("rt_info")
    if info is None:
        info = ET.Element("rt_info")
        layer.insert(0 if layer.find("data") is None else 1, info)
    ET.SubElement(info, "attribute", _KEEP_F32)
