"""An emulated device that computes some operations less precisely, on any processor."""

from collections.abc import Callable

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.runtime.devices import Device
from placement.runtime.measurement.request import PlacementError
from placement.runtime.models import inputs, operations, outputs
from placement.runtime.models.outputs import OutputCheck

DEVICE = Device("LOW", ("emulated",), "bf16", 1, None, {}, False)
TOLERANCE = 0.1

# Changes the output of the operation with this name, as the device would.
Corrupt = Callable[[str, ov.Output], ov.Output]


def round_to_bf16(_: str, output: ov.Output) -> ov.Output:
    """Rounds to 8 significant bits by arithmetic in f32 (Dekker 1971, Veltkamp's splitting)."""
    if output.get_element_type() != ov.Type.f32:
        return output
    scaled = ops.multiply(output, np.float32(2**16 + 1))
    return ops.subtract(scaled, ops.subtract(scaled, output)).output(0)


class EmulatedMeasurer:
    """Answers requests about output errors as the measuring process does, and times nothing."""

    def __init__(self, model: ov.Model, corrupt: Corrupt = round_to_bf16):
        self.devices = (DEVICE,)
        self.computed_ops = frozenset(operations.computed_names(model))
        self._samples = inputs.load_inputs(model).samples
        self._model, self._corrupt = model, corrupt
        self._reference = self._infer(frozenset())

    def ask(self, request: PlacementError) -> OutputCheck:
        affinity = request.candidate.affinity
        return self._check(frozenset(op for op, name in affinity.items() if name == DEVICE.name))

    def check_whole(self) -> OutputCheck:
        """Checks the outputs with the whole model on the device."""
        return self._check(self.computed_ops)

    def _check(self, names: frozenset[str]) -> OutputCheck:
        pairs = zip(self._reference, self._infer(names), strict=True)
        return OutputCheck(max(outputs.compare(a, b).error for a, b in pairs), TOLERANCE)

    def _infer(self, names: frozenset[str]) -> list[list[np.ndarray]]:
        clone = self._model.clone()
        for op in clone.get_ordered_ops():
            if op.get_friendly_name() not in names & self.computed_ops:
                continue
            for output in op.outputs():
                readers = output.get_target_inputs()
                corrupted = self._corrupt(op.get_friendly_name(), output)
                for port in readers:
                    port.replace_source_output(corrupted)
        core = ov.Core()
        config = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = core.compile_model(clone, "CPU", config)
        return [
            [np.array(array) for array in compiled(arrays).values()] for arrays in self._samples
        ]
