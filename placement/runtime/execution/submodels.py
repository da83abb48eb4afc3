"""A cache of compiled submodels, and the formats in which they hand tensors to each other."""

import collections
from collections.abc import Callable, Mapping, Sequence

import openvino as ov

from placement.runtime.devices import CPU_PLUGIN, Device, is_cpu, reference_device
from placement.runtime.execution.split import (
    MODEL_FORMAT,
    Part,
    TensorFormat,
    TensorId,
    build_submodels,
)
from placement.runtime.models.operations import find_constants_read, ops_by_name

# The constants that a device may hold as a share of its limit. The rest is left to the plug-in. It
# took up to 2.3 times the constants (docs/MODELS.md), but how much it takes is unknown before.
CONSTANTS_SHARE = 0.25

_CACHE_BYTES = 4 << 30  # of weights in compiled submodels; a device may keep two copies of them


class Submodels:
    """A cache of compiled submodels by content, so that similar placements share them."""

    def __init__(
        self, core: ov.Core, model: ov.Model, *, alive: Callable[[float], None] = lambda _: None
    ):
        """Makes an empty cache of the parts of a model.

        `alive` is called before each compilation with the share of the model's operations that is
        compiled next, because thousands of submodels take minutes. An exception that it raises ends
        the compilations.
        """
        self.num_compilations = 0  # the number of compilations so far
        self.model = model
        self._core = core
        self._alive = alive
        self._num_ops = len(model.get_ops())
        # Content of a submodel -> the compiled submodel and the bytes of its weights, the least
        # recently used first.
        self._cache: collections.OrderedDict[tuple[object, ...], tuple[ov.CompiledModel, int]]
        self._cache = collections.OrderedDict()
        self._formats: dict[tuple[object, ...], dict[TensorId, TensorFormat]] = {}
        self._constants_read = find_constants_read(model)

    def compile(self, parts: Sequence[Part], devices: Sequence[Device]) -> list[ov.CompiledModel]:
        """Returns a compiled model for each part; compiles only those that are not cached."""
        device_by_name = {device.name: device for device in devices}
        formats = self._choose_formats(parts, device_by_name)
        # A compiled submodel depends on these alone, given the model.
        keys = [
            (
                *_device_key(device_by_name[part.device]),
                part.ops,
                len(part.inputs),
                tuple((tensor, formats.get(tensor)) for tensor in part.inputs + part.sent_tensors),
                part.model_outputs,
            )
            for part in parts
        ]
        new_parts = {
            key: part for key, part in zip(keys, parts, strict=True) if key not in self._cache
        }
        built = build_submodels(self.model, list(new_parts.values()), formats)
        for (key, part), submodel in zip(new_parts.items(), built, strict=True):
            device = device_by_name[part.device]
            self._alive(len(part.ops) / self._num_ops)
            constants = {c: size for op in part.ops for c, size in self._constants_read[op].items()}
            num_bytes = sum(constants.values())
            if device.capacity_bytes is not None:
                # The oldest submodels of the device go, except those that this placement needs, as
                # far as the constants exceed the device's share.
                cached = [k for k in self._cache if k[0] == device.name]
                cached_bytes = num_bytes + sum(self._cache[k][1] for k in cached)
                for k in cached:
                    if cached_bytes > CONSTANTS_SHARE * device.capacity_bytes and k not in keys:
                        cached_bytes -= self._cache.pop(k)[1]
            compiled = self._core.compile_model(submodel, device.name, dict(device.properties))
            self._cache[key] = compiled, num_bytes
            self.num_compilations += 1
        compiled_models = [self._cache[key][0] for key in keys]
        for key in keys:
            self._cache.move_to_end(key)
        cached_bytes = sum(num_bytes for _, num_bytes in self._cache.values())
        while len(self._cache) > 1 and cached_bytes > _CACHE_BYTES:
            _, (_, num_bytes) = self._cache.popitem(last=False)
            cached_bytes -= num_bytes
        return compiled_models

    def _choose_formats(
        self, parts: Sequence[Part], devices: Mapping[str, Device]
    ) -> dict[TensorId, TensorFormat]:
        """Returns the formats of the tensors that CPU devices send to CPU devices only.

        Each is the format in which the sending device would keep the tensor inside the whole model,
        so that handing it over converts nothing.
        """
        formats: dict[TensorId, TensorFormat] = {}
        for part in parts:
            device = devices[part.device]
            if not part.sent_tensors or not is_cpu(device):
                continue
            key = _device_key(device)
            if key not in self._formats:
                self._alive(1.0)
                # A device with a limit may not hold the whole model, but the plain CPU does.
                is_limited = device.capacity_bytes is not None
                name = reference_device().name if is_limited else device.name
                try:
                    compiled = self._core.compile_model(self.model, name, dict(device.properties))
                    self._formats[key] = _read_formats(self.model, compiled)
                except RuntimeError:  # it does not support an operation, and will not be given it
                    self._formats[key] = {}
            kept_formats = self._formats[key]
            formats |= {t: kept_formats[t] for t in part.sent_tensors if t in kept_formats}
        for part in parts:
            if not is_cpu(devices[part.device]):
                for tensor in part.inputs:
                    formats.pop(tensor, None)
        return formats


def _device_key(device: Device) -> tuple[object, ...]:
    """Returns what compilations for a device depend on; equal host devices share them."""
    is_shared = device.host and device.capacity_bytes is None
    name = CPU_PLUGIN if is_shared else device.name
    return name, *sorted((key, str(value)) for key, value in device.properties.items())


def _read_formats(model: ov.Model, compiled: ov.CompiledModel) -> dict[TensorId, TensorFormat]:
    """Returns the formats of f32 tensors that a compiled model does not keep as the model has them.

    The plug-in names a layout by its axes, the slowest first: 'acdb' is NHWC. Blocked layouts such
    as 'aBcd16b' have other characters, are no order of axes, and are skipped.
    """
    ops = ops_by_name(model)
    formats: dict[TensorId, TensorFormat] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = {key: str(value.astype(str)) for key, value in node.get_rt_info().items()}
        names = [n for n in info.get("originalLayersNames", "").split(",") if n in ops]
        layouts, types = (info.get(k, "").split(",") for k in ("outputLayouts", "outputPrecisions"))
        for index, (layout, element_type) in enumerate(zip(layouts, types, strict=False)):
            axes = tuple(ord(letter) - ord("a") for letter in layout)
            if sorted(axes) != list(range(len(axes))):
                continue
            axis_order = axes if axes != tuple(sorted(axes)) else ()
            tensor_format = TensorFormat(
                axis_order, ov.Type.bf16 if element_type == "bf16" else None
            )
            for name in names:
                if index >= ops[name].get_output_size():
                    continue
                output = ops[name].output(index)
                rank = output.get_partial_shape().rank
                has_rank = rank.is_static and rank.get_length() == len(axes)
                if has_rank and output.get_element_type() == ov.Type.f32:
                    formats[name, index] = tensor_format
    return {tensor: value for tensor, value in formats.items() if value != MODEL_FORMAT}
