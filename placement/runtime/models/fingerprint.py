"""Fingerprints of models: short records that suffice to say how one model differs from another.

Attributes, shapes, types, connections and integers are compared exactly. Of floating-point
constants only the mean magnitude is kept, and compared to five digits: a constant that was folded
on another processor differs in its last bits. The positions of infinities and NaN in them, as masks
have, are compared exactly.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import openvino as ov

from placement.runtime.models.operations import op_bodies, ops_by_name

# JSON-able. 'ops': name of an operation -> 'TYPE, its outputs #digest of everything else'.
# 'weights': name of a floating-point constant -> mean magnitude, where infinities and NaN count 0.
Fingerprint = Mapping[str, Any]

_MAX_LISTED = 3
_RELATIVE_TOLERANCE = 1e-5
_CHUNK_ELEMENTS = 1 << 20  # processed at once, because a constant may be as large as the memory


def compute_fingerprint(model: ov.Model) -> dict[str, Any]:
    """Returns the fingerprint of a model with unique friendly names (`frontend.prepare`)."""
    described_ops, weights = {}, {}
    for name, op in ops_by_name(model).items():
        element_type = op.get_output_element_type(0) if op.get_type_name() == "Constant" else None
        # NumPy has no bf16: OpenVINO shows its bits as f16. They are compared exactly, as integers.
        is_weight = element_type in (ov.Type.f16, ov.Type.f32, ov.Type.f64)
        values = ""
        if is_weight:
            # The mean magnitude, where infinities and NaN count 0, and a digest of these.
            mean, kinds_digest, flat = 0.0, hashlib.sha256(), op.data.reshape(-1)
            for start in range(0, flat.size, _CHUNK_ELEMENTS):
                chunk = flat[start : start + _CHUNK_ELEMENTS]
                is_finite = np.isfinite(chunk)
                kinds = np.where(is_finite, 0, np.nan_to_num(chunk, nan=2, posinf=1, neginf=-1))
                kinds_digest.update(kinds.tobytes())
                # Dividing before summing: the largest floats, which masks contain, would overflow.
                magnitudes = np.abs(chunk[is_finite])
                mean += np.divide(magnitudes, flat.size, dtype=np.float64).sum()
            weights[name], values = float(mean), kinds_digest.hexdigest()
        elif element_type is not None and element_type != ov.Type.string:
            values = hashlib.sha256(np.ascontiguousarray(op.data).data).hexdigest()
        outputs = Counter(
            f"{output.get_element_type().to_string()}{output.get_partial_shape().to_string()}"
            for output in op.outputs()
        )
        listed = (f"{count} x {text}" if count > 1 else text for text, count in outputs.items())
        inputs = [(s.get_node().get_friendly_name(), s.get_index()) for s in op.input_values()]
        bodies = [sorted(compute_fingerprint(body)["ops"].values()) for body in op_bodies(op)]
        rest = [op.get_attributes(), inputs, bodies, values]
        # An attribute that JSON cannot hold counts by its type: its text may hold an address.
        text = json.dumps(rest, sort_keys=True, default=lambda value: type(value).__name__)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        described_ops[name] = f"{' '.join([op.get_type_name(), *listed])} #{digest}"
    return {"ops": described_ops, "weights": weights}


def describe_differences(earlier: Fingerprint, later: Fingerprint) -> list[str]:
    """Describes each way in which a model differs from an earlier one; [] if they are equal."""
    old_ops, new_ops = earlier["ops"], later["ops"]
    lost, new = ([n for n in a if n not in b] for a, b in ((old_ops, new_ops), (new_ops, old_ops)))
    described = [f"it lacks {quote_names(lost)}"] if lost else []
    described += [f"it has new {quote_names(new)}"] if new else []
    changed_outputs, changed_rest = [], []
    for name, old_op in old_ops.items():
        new_op = new_ops.get(name, old_op)
        old_outputs, new_outputs = (op.rpartition(" #")[0] for op in (old_op, new_op))
        if old_outputs != new_outputs:
            changed_outputs.append(f"{name!r} was {old_outputs} and is {new_outputs}")
        elif old_op != new_op:
            changed_rest.append(name)
    described += changed_outputs[:_MAX_LISTED]
    if num_more := len(changed_outputs[_MAX_LISTED:]):
        described.append(f"{num_more} more have other shapes or types")
    if changed_rest:
        described.append(f"{quote_names(changed_rest)} differ in attributes, inputs or values")
    changed_weights = [
        name
        for name, old in earlier["weights"].items()
        if not math.isclose(old, later["weights"].get(name, old), rel_tol=_RELATIVE_TOLERANCE)
    ]
    if changed_weights:
        described.append(f"weights changed in {quote_names(changed_weights)}")
    return described


def quote_names(names: Iterable[str]) -> str:
    """Lists the first names in quotes, such as "'a', 'b', 'c' and 7 more"."""
    quoted = [repr(name) for name in names]
    suffix = f" and {len(quoted) - _MAX_LISTED} more" if len(quoted) > _MAX_LISTED else ""
    return ", ".join(quoted[:_MAX_LISTED]) + suffix
