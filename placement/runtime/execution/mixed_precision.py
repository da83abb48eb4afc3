"""Placements on one CPU in two precisions, as a single program of the CPU plug-in.

The plug-in computes a model in a coarser precision, without submodels, except for operations with
the attribute `DisablePrecisionConversion`, which keep f32. The Python interface cannot set the
attribute, but model files hold it.

The plug-in drops the attribute from operations that it replaces. `_replace` gives it some marked
operations in a form that it keeps. Others, such as RMS normalisation, attention and Tile, cannot be
kept in f32, so the outputs of every placement are checked.
"""

import math
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Collection
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset1, opset8

from placement.runtime.devices import Device, is_cpu
from placement.runtime.models import operations, serialization

_HINT = "INFERENCE_PRECISION_HINT"
_COMMUTATIVE = {"Add": opset1.add, "Multiply": opset1.multiply}
# `dynamic` stands for every precision that an operation may have.
_KEEP_F32 = {"name": "DisablePrecisionConversion", "version": "0", "value": "dynamic:f16"}


def find_coarse_device(devices: Collection[Device]) -> Device | None:
    """Returns the device of the coarser precision if the devices are one CPU in f32 and in it."""
    is_one_cpu = all(is_cpu(device) and device.core is None for device in devices)
    others = {tuple(sorted({**device.properties, _HINT: ""}.items())) for device in devices}
    coarse = [device for device in devices if device.precision != "f32"]
    is_pair = len(devices) == 2 and len(coarse) == 1 and len(others) == 1
    return coarse[0] if is_one_cpu and is_pair else None


def keep_in_f32(core: ov.Core, model: ov.Model, names: Collection[str]) -> ov.Model:
    """Returns a copy of a model of `frontend.prepare` in which the named operations keep f32.

    Inputs, outputs and constants among them have no precision to keep. `core` reads the model.
    """
    clone = model.clone()
    marked = set(names).intersection(operations.computed_names(clone))
    # The plug-in adds the second tensor of a sum in place where a convolution writes, so that both
    # need one precision. OpenVINO 2026.4 refuses to compile them otherwise.
    constants = operations.constant_names(clone)

    def variable_sources(op: ov.Node) -> list[ov.Node]:
        sources = [port.get_source_output().get_node() for port in op.inputs()]
        return [source for source in sources if source.get_friendly_name() not in constants]

    for name, op in operations.ops_by_name(clone).items():
        sources = variable_sources(op)
        for source in sources if op.get_type_name() == "Add" and len(sources) > 1 else ():
            # From the sum through operations with one input, such as the addition of a bias.
            chain = [source]
            while len(chain) == 1 and len(chain[0].output(0).get_target_inputs()) == 1:
                if chain[0].get_type_name() in ("Convolution", "GroupConvolution", "MatMul"):
                    if chain[0].get_friendly_name() in marked:
                        marked.add(name)
                    break
                chain = variable_sources(chain[0])
    _replace(clone, marked)
    # The model maps the weights' file, which Windows does not remove before the model is gone.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        serialization.write_model(clone, Path(folder))
        xml, weights = (Path(folder) / name for name in (serialization.XML, serialization.WEIGHTS))
        tree = ET.parse(xml)
        for layer in tree.getroot().iterfind("layers/layer"):
            if layer.get("name") in marked:
                info = layer.find("rt_info")
                if info is None:
                    info = ET.Element("rt_info")
                    layer.insert(0 if layer.find("data") is None else 1, info)
                ET.SubElement(info, "attribute", _KEEP_F32)
        tree.write(xml)
        return core.read_model(xml, weights)


def list_kept(model: ov.Model) -> frozenset[str]:
    """Returns the operations that keep f32 in a model from `keep_in_f32`, or in its file."""
    key = "DisablePrecisionConversion_0"  # the attribute in the runtime information
    return frozenset(op.get_friendly_name() for op in model.get_ops() if key in op.get_rt_info())


def _replace(model: ov.Model, marked: set[str]) -> None:
    """Replaces marked operations that the plug-in would replace without their attribute.

    - Gather, MaxPool and Softmax become the version that the plug-in uses. Squeeze and Unsqueeze
      become Reshape.
    - The plug-in replaces a product whose second factor is constant. So the constant becomes the
      first factor: A B = (B^T A^T)^T, which takes about the same time.
    - The plug-in moves the addition or the multiplication of one number in front of a Gather or a
      Reshape, which then lose their attribute. It does not if the number is the first operand.
    """
    constants = operations.constant_names(model)
    for name, op in operations.ops_by_name(model).items():
        if name not in marked:
            continue
        kind, attributes = op.get_type_name(), op.get_attributes()
        sources = [port.get_source_output() for port in op.inputs()]
        ranks = [len(source.partial_shape) for source in sources]
        has_constant = len(sources) == 2 and operations.source_name(op.input(1)) in constants
        if kind == "Gather":
            replacement = opset8.gather(*sources, attributes.get("batch_dims", 0))
        elif kind in ("Squeeze", "Unsqueeze") and op.output(0).partial_shape.is_static:
            replacement = opset1.reshape(sources[0], np.array(op.output(0).shape), False)
        elif kind in _COMMUTATIVE and has_constant and math.prod(op.input(1).get_shape()) == 1:
            replacement = _COMMUTATIVE[kind](*sources[::-1])
        elif kind == "MaxPool" and attributes.get("rounding_type") != "ceil_torch":
            if len(op.outputs()) > 1 and (
                op.output(1).get_target_inputs() or {*attributes["dilations"]} != {1}
            ):
                continue  # the first version has neither indices nor dilations
            keys = "strides", "pads_begin", "pads_end", "kernel", "rounding_type", "auto_pad"
            replacement = opset1.max_pool(sources[0], *(attributes[key] for key in keys))
        elif kind == "Softmax":
            replacement = opset1.softmax(sources[0], attributes["axis"] % ranks[0])
        elif kind == "MatMul" and has_constant and min(ranks) > 1:
            factors = sources[1], sources[0]
            transposes = not attributes["transpose_b"], not attributes["transpose_a"]
            product = opset1.matmul(*factors, *transposes)
            product.set_friendly_name(f"{name}/transposed")
            marked.add(product.get_friendly_name())
            *batch, row, column = range(max(ranks))
            replacement = opset1.transpose(product, np.array([*batch, column, row]))
        else:
            continue
        op.output(0).replace(replacement.output(0))
        replacement.set_friendly_name(name)
