"""Comparison of a device's outputs with the reference, and the errors that are accepted."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.models.operations import constant_names

# The largest error (`compare`) that is accepted in each precision. The networks of the zoo have
# errors of 0 to 2e-6 in f32 and up to 0.023 in bf16. Wrong outputs are off by 0.9 or more: OpenVINO
# 2026.4 fuses bf16 attention and misreads a mask that an f32 submodel hands over, whatever its
# values. CPUs without f16 silently compute it in bf16.
TOLERANCES: Mapping[str, float] = {"f32": 1e-3, "f16": 0.1, "bf16": 0.1}

# A quantised model rounds its tensors to 256 levels, as many as bf16 has in an octave, and may be
# equally far off: if f32 differs in its last bit, a value can become another level.
_QUANTISED_TOLERANCE = TOLERANCES["bf16"]

_LOW_BIT_TYPES = (ov.Type.i8, ov.Type.u8, ov.Type.i4, ov.Type.u4)
_MIN_SPREAD = 1e-30


class Comparison(NamedTuple):
    """The differences between outputs and the reference."""

    error: float  # the largest of all outputs
    nan_share: float  # the share of output values that are NaN in both, which counts as equal


class OutputCheck(NamedTuple):
    """The largest differences of a device's outputs from the reference over all inputs."""

    error: float  # as in `Comparison`
    tolerance: float  # the largest error that is accepted

    @property
    def is_correct(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance

    def describe(self) -> str:
        """Returns a message that says how large the error is."""
        return f"outputs differ by {self.error:.3g} of their spread, over {self.tolerance:g}"


def read(tensor: ov.Tensor) -> np.ndarray:
    """Returns a copy of the content of a tensor; text is str."""
    # `data` has arbitrary bytes if all strings are empty.
    return np.array(tensor.str_data if tensor.element_type == ov.Type.string else tensor.data)


def compare(reference: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Comparison:
    """Compares outputs with the reference's.

    The error of a floating-point output is max |a - b| divided by the spread of the reference
    (max - min), or by its magnitude if it is constant. NaN equals NaN, and infinity equals itself;
    NaN or infinity in place of another value is an infinite error. The error of any other output is
    the share of elements that differ.

    Args:
      reference: one array for each output of the model.
      outputs: the same from another device.
    """
    errors, num_nans = [0.0], 0
    for expected, output in zip(reference, outputs, strict=True):
        if expected.shape != output.shape:
            errors.append(np.inf)
        elif expected.dtype.kind != "f":
            errors.append(float(np.mean(expected != output)) if expected.size else 0.0)
        else:
            a, b = expected.astype(np.float64), output.astype(np.float64)
            both_nan = np.isnan(a) & np.isnan(b)
            num_nans += int(both_nan.sum())
            differ = ~((a == b) | both_nan)
            if not np.all(np.isfinite(a[differ]) & np.isfinite(b[differ])):
                errors.append(np.inf)
            elif differ.any():
                finite = a[np.isfinite(a)]
                spread = max(np.ptp(finite) or np.abs(finite).max(), _MIN_SPREAD)
                errors.append(float(np.abs(a[differ] - b[differ]).max() / spread))
    num_values = sum(array.size for array in reference)
    return Comparison(max(errors), num_nans / max(num_values, 1))


def tolerance(
    devices: Sequence[Device], *, quantised: bool = False, max_error: float = 0.0
) -> float:
    """Returns the largest error that is accepted of outputs computed on `devices`.

    That is `max_error`, the user's limit, or if it is 0 that of the least precise device.
    """
    if max_error:
        return max_error
    allowed = max(TOLERANCES[device.precision] for device in devices)
    return max(allowed, _QUANTISED_TOLERANCE) if quantised else allowed


def is_quantised(model: ov.Model) -> bool:
    """Returns whether a model rounds values to 8 bits or fewer at run time."""
    constants = constant_names(model)
    return any(
        op.get_type_name() == "FakeQuantize"
        or (
            op.get_type_name() == "Convert"
            and op.get_input_element_type(0).is_real()
            and op.get_output_element_type(0) in _LOW_BIT_TYPES
        )
        for op in model.get_ops()
        if op.get_friendly_name() not in constants
    )
