"""Writer of a TensorFlow SavedModel without TensorFlow, as protocol buffers.

A message is a sequence of fields. Each field has a key (number and kind) and a value: kind 0 is an
integer with 7 bits in each byte, kind 2 is a length and that many bytes.
"""

from pathlib import Path

import numpy as np

_FLOAT = 1  # tensorflow.DataType.DT_FLOAT


def write(folder: Path, weights: np.ndarray) -> None:
    """Writes a folder with the model y = relu(x @ weights), x of shape [?, K].

    Args:
      folder: the folder, which must not exist.
      weights: float32 [K, N].
    """
    rows, columns = weights.shape
    kind = {"dtype": _varint_field(6, _FLOAT)}
    tensor = (
        _varint_field(1, _FLOAT) + _field(2, _shape(rows, columns)) + _field(4, weights.tobytes())
    )
    graph = b"".join(
        (
            _node("x", "Placeholder", **kind, shape=_field(7, _shape(-1, rows))),
            _node("w", "Const", **kind, value=_field(8, tensor)),
            _node("product", "MatMul", "x", "w", T=kind["dtype"]),
            _node("y", "Relu", "product", T=kind["dtype"]),
        )
    )
    signature = _field(1, _entry("x", _info("x:0", -1, rows)))
    signature += _field(2, _entry("y", _info("y:0", -1, columns)))
    signature += _field(3, b"tensorflow/serving/predict")
    meta = _field(1, _field(4, b"serve")) + _field(2, graph)
    meta += _field(5, _entry("serving_default", signature))
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(_varint_field(1, 1) + _field(2, meta))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _entry(key: str, value: bytes) -> bytes:
    """Encodes an entry of a map."""
    return _field(1, key.encode()) + _field(2, value)


def _shape(*sizes: int) -> bytes:
    return b"".join(_field(2, _varint_field(1, size)) for size in sizes)


def _node(name: str, op: str, *inputs: str, **attributes: bytes) -> bytes:
    """Encodes a NodeDef in its GraphDef."""
    encoded_inputs = b"".join(_field(3, input_name.encode()) for input_name in inputs)
    encoded_attributes = b"".join(
        _field(5, _entry(key, value)) for key, value in attributes.items()
    )
    return _field(
        1, _field(1, name.encode()) + _field(2, op.encode()) + encoded_inputs + encoded_attributes
    )


def _info(tensor: str, *sizes: int) -> bytes:
    return _field(1, tensor.encode()) + _varint_field(2, _FLOAT) + _field(3, _shape(*sizes))
