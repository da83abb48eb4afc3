"""What a model consists of, in short: enough to say in what it differs from another.

Attributes, shapes, types, connections and integers are compared exactly. Of floating-point
constants only their magnitude is kept, and compared to five digits: one that is folded on another
processor differs from this one's by its last bits. Where they are infinite or no numbers, as masks
are, is compared exactly.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import openvino as ov

from placement.runtime.models.operations import bodies

# JSON-able: 'ops' is {name of an operation: 'TYPE, its outputs #digest of the rest'}, 'weights'
# {name of a floating-point constant: mean of its magnitudes, of which infinities and NaN are 0}.
Fingerprint = Mapping[str, Any]

_SHOWN = 3
_RELATIVE = 1e-5
_CHUNK = 1 << 20  # elements looked at in one go: a constant may be as large as the memory


def of(model: ov.Model) -> dict[str, Any]:
    """The fingerprint of a model with unique friendly names (`frontend.prepare`)."""
    ops, weights = {}, {}
    for op in model.get_ordered_ops():
        name = op.get_friendly_name()
        ops[name] = f"{_looks(op)} #{_digest(_rest(op))[:8]}"
        if _is_weight(op):
            weights[name] = _magnitude(op.data)
    return {"ops": ops, "weights": weights}


def digest(fingerprint: Fingerprint) -> str:
    """SHA-256 of a fingerprint."""
    weights = {name: f"{value:.4g}" for name, value in fingerprint["weights"].items()}
    return _digest([sorted(fingerprint["ops"].items()), sorted(weights.items())])


def differences(then: Fingerprint, now: Fingerprint) -> list[str]:
    """In what two models differ, a few words each; nothing if they do not."""
    found = other_names(then["ops"], now["ops"])
    changed = [(n, text, now["ops"][n]) for n, text in then["ops"].items() if n in now["ops"]]
    changed = [(name, *pair) for name, *pair in changed if pair[0] != pair[1]]
    looks = [(name, _without_digest(a), _without_digest(b)) for name, a, b in changed]
    other = [f"{name!r} was {a} and is {b}" for name, a, b in looks if a != b]
    rest = [name for name, a, b in looks if a == b]
    found += other[:_SHOWN]
    found += [f"{len(other) - _SHOWN} more have other shapes or types"] if other[_SHOWN:] else []
    if rest:
        found.append(f"{few(rest)} differ in attributes, inputs or values")
    weights = [
        name
        for name, value in then["weights"].items()
        if not _is_close(value, now["weights"].get(name, value))
    ]
    found += [f"weights changed in {few(weights)}"] if weights else []
    return found


def other_names(then: Collection[str], now: Collection[str]) -> list[str]:
    """Which operations are gone and which are new, a few words each."""
    lost, new = ([n for n in a if n not in b] for a, b in ((then, now), (now, then)))
    found = [f"it lacks {few(lost)}"] if lost else []
    return found + ([f"it has new {few(new)}"] if new else [])


def few(names: Iterable[str]) -> str:
    """'a', 'b', 'c' and 7 more."""
    listed = [repr(name) for name in names]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def _looks(op: ov.Node) -> str:
    outputs = Counter(
        f"{output.get_element_type().to_string()}{output.get_partial_shape().to_string()}"
        for output in op.outputs()
    )
    listed = (f"{count} x {text}" if count > 1 else text for text, count in outputs.items())
    return " ".join([op.get_type_name(), *listed])


def _is_close(then: float | None, now: float) -> bool:
    """None is no number: an earlier version's mean over infinities."""
    return then is not None and math.isclose(then, now, rel_tol=_RELATIVE)


def _without_digest(text: str) -> str:
    return text.rpartition(" #")[0]


def _rest(op: ov.Node) -> list[Any]:
    """Returns what else an operation is: attributes, what it reads, values compared exactly."""
    read = [(s.get_node().get_friendly_name(), s.get_index()) for s in op.input_values()]
    inside = [sorted(of(body)["ops"].values()) for body in bodies(op)]
    values = ""
    if _is_weight(op):
        values = _irregular(op.data)
    elif op.get_type_name() == "Constant" and _is_number(op):
        values = hashlib.sha256(np.ascontiguousarray(op.data).data).hexdigest()
    return [op.get_attributes(), read, inside, values]


def _magnitude(array: np.ndarray) -> float:
    """Mean of the magnitudes, infinities and NaN counted as 0."""
    finite = (chunk[np.isfinite(chunk)] for chunk in _chunks(array))
    # Divided before they are summed: the largest numbers there are, as masks have, would overflow.
    return float(sum(np.divide(np.abs(x), array.size, dtype=np.float64).sum() for x in finite))


def _irregular(array: np.ndarray) -> str:
    """A digest of where infinities and NaN are; '' where all elements are finite."""
    digest, seen = hashlib.sha256(), False
    for chunk in _chunks(array):
        kinds = np.where(np.isinf(chunk), np.sign(chunk), 2 * np.isnan(chunk)).astype(np.int8)
        digest.update(kinds)
        seen = seen or bool(kinds.any())
    return digest.hexdigest() if seen else ""


def _chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def _is_weight(op: ov.Node) -> bool:
    # NumPy has no bf16: OpenVINO shows its bits as f16, so that they count as a number's.
    kind = op.get_output_element_type(0) if op.get_type_name() == "Constant" else None
    return kind in (ov.Type.f16, ov.Type.f32, ov.Type.f64)


def _is_number(op: ov.Node) -> bool:
    return op.get_output_element_type(0) != ov.Type.string


def _digest(content: Any) -> str:
    # An attribute that is no JSON is told by its type: its text may hold an address.
    text = json.dumps(content, sort_keys=True, default=lambda value: type(value).__name__)
    return hashlib.sha256(text.encode()).hexdigest()
