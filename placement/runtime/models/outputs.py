"""What of a device's outputs counts as right."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.models.operations import constant_names

# Largest error (`compare`) accepted of outputs computed in a precision.
# Seen on the networks of the zoo: 0 to 2e-6 in f32 and up to 0.023 in bf16, where what goes wrong
# (OpenVINO 2026.4 fuses bf16 attention and misreads a mask that an f32 submodel hands it, whatever
# its values) is off by 0.9 or more. CPUs without f16 take it for bf16 in silence.
TOLERANCES: Mapping[str, float] = {"f32": 1e-3, "f16": 0.1, "bf16": 0.1}

# Of a model that rounds its tensors to 256 levels itself: as many as bf16 tells apart in an octave,
# so that it may be as far off. Where f32 differs by its last bit, a value becomes another level.
_QUANTISED_TOLERANCE = TOLERANCES["bf16"]

_LOW_BIT = (ov.Type.i8, ov.Type.u8, ov.Type.i4, ov.Type.u4)
_TINY = 1e-30


class Comparison(NamedTuple):
    """How far outputs are from the reference."""

    error: float  # largest of all outputs
    nan_share: float  # of the output values, those that are NaN in both, which counts as equal


class Checked(NamedTuple):
    """Outputs of a device against what is accepted of it."""

    error: float
    tolerance: float

    @property
    def right(self) -> bool:
        """Whether the outputs can be used."""
        return self.error <= self.tolerance

    def describe(self) -> str:
        """Says in what they are wrong."""
        return f"outputs differ by {self.error:.3g} of their spread, over {self.tolerance:g}"


def compare(reference: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Comparison:
    """Compares outputs with the reference's.

    Of a floating-point output: max |a - b| over the spread of the reference, max - min; over its
    magnitude where it is constant. NaN against NaN, and infinity against the same, are equal; NaN
    or infinity against anything else is an infinite error. Of any other: the share of elements
    that differ. Both have one array for each output of the model, of the same shapes.
    """
    errors = [_error(a, b) for a, b in zip(reference, outputs, strict=True)]
    nans = [np.isnan(a) & np.isnan(b) for a, b in zip(reference, outputs, strict=True) if _real(a)]
    values = sum(a.size for a in reference)
    return Comparison(max(errors, default=0.0), sum(int(n.sum()) for n in nans) / max(values, 1))


def tolerance(devices: Sequence[Device], *, quantised: bool = False) -> float:
    """Returns the largest error accepted of outputs computed on `devices`."""
    allowed = max(TOLERANCES[device.precision] for device in devices)
    return max(allowed, _QUANTISED_TOLERANCE) if quantised else allowed


def is_quantised(model: ov.Model) -> bool:
    """Whether a model rounds values to 8 bits or fewer at run time."""
    constant = constant_names(model)
    return any(
        op.get_type_name() == "FakeQuantize"
        or (
            op.get_type_name() == "Convert"
            and op.get_input_element_type(0).is_real()
            and op.get_output_element_type(0) in _LOW_BIT
        )
        for op in model.get_ops()
        if op.get_friendly_name() not in constant
    )


def _real(array: np.ndarray) -> bool:
    return array.dtype.kind == "f"


def _error(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return float("inf")
    if a.size == 0:
        return 0.0
    if not _real(a):
        return float(np.mean(a != b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not np.all(np.isfinite(a[differ]) & np.isfinite(b[differ])):
        return float("inf")
    finite = a[np.isfinite(a)]
    if not differ.any():
        return 0.0
    spread = np.ptp(finite) or np.abs(finite).max()
    return float(np.abs(a[differ] - b[differ]).max() / max(spread, _TINY))
