"""Compiled submodels, kept by content, and the formats in which they hand tensors over."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import openvino as ov

from placement.runtime.devices import Device, is_cpu
from placement.runtime.execution.split import PLAIN, Format, Part, Tensor, submodels
from placement.runtime.models.operations import constant_names

# A device of one core computes on the thread that calls it, so that a submodel needs no threads of
# its own. By default it has two, idle; a few thousand of them make a waiting thread wake up in 70
# us instead of 25, and what was measured last would be the slowest.
_NO_THREADS = {"NUM_STREAMS": 0}

_CACHE_BYTES = 4 << 30  # of weights in compiled submodels, of which a device may keep two copies


class Submodels:
    """Compiled submodels by content, so that similar placements of a model share them."""

    def __init__(
        self, core: ov.Core, model: ov.Model, *, alive: Callable[[float], None] = lambda _: None
    ):
        """A cache of submodels of `model`, for devices that `core` knows.

        `alive` is called before each compilation, with the share of the model's operations that is
        compiled next: thousands of submodels take minutes. What it raises ends the compilations.
        """
        self.compiled = 0  # how many were, since the beginning
        self.model = model
        self._core = core
        self._alive = alive
        self._num_ops = len(model.get_ops())
        self._kept: collections.OrderedDict[tuple[object, ...], ov.CompiledModel]
        self._kept = collections.OrderedDict()
        self._bytes = {
            op.get_friendly_name(): op.get_byte_size()
            for op in model.get_ordered_ops()
            if op.get_type_name() == "Constant"
        }
        self._sizes: dict[tuple[object, ...], int] = {}
        self._constants = _constants_read(model)
        self._formats: dict[tuple[object, ...], dict[Tensor, Format]] = {}

    def compile(self, parts: Sequence[Part], devices: Sequence[Device]) -> list[ov.CompiledModel]:
        """A compiled model for each part; only those that are new are compiled."""
        by_name = {device.name: device for device in devices}
        formats = self._handed_over(parts, by_name)
        keys = [_content(part, by_name[part.device], formats) for part in parts]
        new = [i for i, key in enumerate(keys) if key not in self._kept]
        built = submodels(self.model, [parts[i] for i in new], formats)
        for i, model in zip(new, built, strict=True):
            device = by_name[parts[i].device]
            self._alive(len(parts[i].ops) / self._num_ops)
            self._kept[keys[i]] = self._core.compile_model(model, device.name, _properties(device))
            self._sizes[keys[i]] = self._weights(parts[i])
            self.compiled += 1
        found = [self._kept[key] for key in keys]
        for key in keys:
            self._kept.move_to_end(key)
        self._forget()
        return found

    def _handed_over(
        self, parts: Sequence[Part], devices: Mapping[str, Device]
    ) -> dict[Tensor, Format]:
        """The formats of tensors that only the CPU's plug-in writes and reads.

        Each is that in which its device keeps the tensor, so that handing it over converts nothing.
        """
        found: dict[Tensor, Format] = {}
        for part in parts:
            if part.hands_over and is_cpu(devices[part.device]):
                kept = self._kept_formats(devices[part.device])
                found |= {t: kept[t] for t in part.hands_over if t in kept}
        for part in parts:
            if not is_cpu(devices[part.device]):
                for tensor in part.reads:
                    found.pop(tensor, None)
        return found

    def _kept_formats(self, device: Device) -> dict[Tensor, Format]:
        """How a device keeps the tensors of the whole model."""
        key = _compiled_by(device)
        if key not in self._formats:
            self._alive(1.0)
            try:
                compiled = self._core.compile_model(self.model, device.name, _properties(device))
                found = _formats(self.model, compiled)
            except RuntimeError:  # an operation that it does not support, and will not be given
                found = {}
            self._formats[key] = found
        return self._formats[key]

    def _weights(self, part: Part) -> int:
        read = {name for op in part.ops for name in self._constants.get(op, ())}
        return sum(self._bytes[name] for name in read)

    def _forget(self) -> None:
        """Drops those that were used the longest ago while all together are too large."""
        while len(self._kept) > 1 and sum(self._sizes.values()) > _CACHE_BYTES:
            key, _ = self._kept.popitem(last=False)
            del self._sizes[key]


def _content(part: Part, device: Device, formats: Mapping[Tensor, Format]) -> tuple[object, ...]:
    """What a compiled submodel depends on, given the model."""
    handed_over = tuple((tensor, formats.get(tensor)) for tensor in part.reads + part.hands_over)
    shape = part.ops, len(part.reads), handed_over, part.results
    return *_compiled_by(device), *shape


def _compiled_by(device: Device) -> tuple[object, ...]:
    properties = sorted((key, str(value)) for key, value in _properties(device).items())
    return device.name, *properties


def _properties(device: Device) -> dict[str, Any]:
    """What the device's submodels are compiled with."""
    return dict(device.properties) | (_NO_THREADS if device.core is not None else {})


def _formats(model: ov.Model, compiled: ov.CompiledModel) -> dict[Tensor, Format]:
    """How a compiled model keeps its floating-point tensors, where that is not as the model says.

    The plug-in names a layout by its axes, the slowest first: 'acdb' is NHWC. Blocked ones have
    other letters, and are no order of axes.
    """
    ops = {op.get_friendly_name(): op for op in model.get_ordered_ops()}
    found: dict[Tensor, Format] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = {key: str(value.astype(str)) for key, value in node.get_rt_info().items()}
        names = [n for n in info.get("originalLayersNames", "").split(",") if n in ops]
        layouts, types = (info.get(k, "").split(",") for k in ("outputLayouts", "outputPrecisions"))
        for index, (layout, element_type) in enumerate(zip(layouts, types, strict=False)):
            axes = tuple(ord(letter) - ord("a") for letter in layout)
            if sorted(axes) != list(range(len(axes))):
                continue
            order = axes if axes != tuple(sorted(axes)) else ()
            kept = Format(order, ov.Type.bf16 if element_type == "bf16" else None)
            for name in names:
                if index < ops[name].get_output_size() and _fits(ops[name].output(index), axes):
                    found[name, index] = kept
    return {tensor: kept for tensor, kept in found.items() if kept != PLAIN}


def _fits(output: ov.Output, axes: Sequence[int]) -> bool:
    rank = output.get_partial_shape().rank
    known = rank.is_static and rank.get_length() == len(axes)
    return known and output.get_element_type() == ov.Type.f32


def _constants_read(model: ov.Model) -> dict[str, set[str]]:
    """For each operation, the Constants that it reads, directly or through what they make."""
    constant = constant_names(model)
    behind: dict[str, set[str]] = {}
    for op in model.get_ordered_ops():
        name = op.get_friendly_name()
        found = {name} if op.get_type_name() == "Constant" else set()
        for source in op.input_values():
            other = source.get_node().get_friendly_name()
            if other in constant:
                found |= behind[other]
        behind[name] = found
    return behind
