"""BERT-base for text."""

import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers

_LAYERS = 12
_HIDDEN = 768
_HEADS = 12
_HEAD = _HIDDEN // _HEADS
_INTERMEDIATE = 3072
_VOCABULARY = 30522
_TOKEN_TYPES = 2
_SEQUENCE = 128
_NORM_EPSILON = 1e-12

# Words outweigh what all sequences share (positions, token types), so that inputs stay apart.
_WORD_STD = 0.04
_SHARED_STD = 0.005
# Near-uniform attention averages over the sequence; without a gain it would change nothing.
_ATTENTION_GAIN = 2.0


def bert_base() -> ov.Model:
    """BERT-base with pooler, batch 1, sequence 128, all shapes static.

    input_ids, attention_mask, token_type_ids: int64 [1, 128].
    last_hidden_state: float32 [1, 128, 768]; pooler_output: float32 [1, 768].

    Devlin et al. 2018, "BERT", section 3 (L=12, H=768, A=12), in the layout Hugging Face's model
    has when exported: position embeddings of the 128 rows folded into one constant, layer
    normalisation as MVN, scale, shift; keys transposed by an operation of their own.
    1009 operations and 1068 edges; 444 operations without constants and their Converts. Duan et
    al. 2024 count 1009 and 1071 in their export. No edges are made up by sharing constants or
    computing shapes in the graph: a placement that cuts there makes shapes dynamic.
    """
    input_ids, attention_mask, token_type_ids = (
        layers.parameter(name, (1, _SEQUENCE), ov.Type.i64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    hidden = _embeddings(input_ids, token_type_ids)
    mask = _additive_mask(attention_mask)
    for layer in range(_LAYERS):
        hidden = _encoder_layer(hidden, mask, f"encoder/{layer}")
    outputs = [
        layers.result(hidden, "last_hidden_state"),
        layers.result(_pooler(hidden), "pooler_output"),
    ]
    return ov.Model(outputs, [input_ids, attention_mask, token_type_ids], "bert_base")


def _embedding(ids: ov.Node, name: str, rows: int, std: float) -> ov.Node:
    """Rows of a table: int64 [1, S] -> [1, S, hidden]."""
    table = layers.noise(f"{name}/weight", (rows, _HIDDEN), std=std)
    index = ops.convert(ids, "i32", name=f"{name}/ids")
    return ops.gather(table, index, layers.integers(f"{name}/axis", 0), name=f"{name}/gather")


def _embeddings(input_ids: ov.Node, token_type_ids: ov.Node) -> ov.Node:
    """Words, token types and positions, normalised: int64 [1, S] twice -> [1, S, hidden]."""
    words = _embedding(input_ids, "embeddings/word", _VOCABULARY, _WORD_STD)
    types = _embedding(token_type_ids, "embeddings/token_type", _TOKEN_TYPES, _SHARED_STD)
    shape = (1, _SEQUENCE, _HIDDEN)
    positions = layers.noise("embeddings/position/weight", shape, std=_SHARED_STD)
    total = ops.add(words, types, name="embeddings/token_type/add")
    total = ops.add(total, positions, name="embeddings/position/add")
    return _layer_norm(total, "embeddings/norm")


def _additive_mask(attention_mask: ov.Node) -> ov.Node:
    """0 where attended and float16's lowest number elsewhere: int64 [1, S] -> [1, 1, 1, S]."""
    x = attention_mask
    for axis in (1, 2):
        x = layers.unsqueeze(x, f"mask/unsqueeze{axis}", axis)
    x = ops.convert(x, "f32", name="mask/to_float")
    inverted = ops.subtract(layers.scalar("mask/one", 1.0), x, name="mask/invert")
    hidden = ops.convert(inverted, "boolean", name="mask/to_boolean")
    return ops.select(hidden, layers.scalar("mask/lowest", -65504.0), inverted, name="mask/fill")


def _layer_norm(x: ov.Node, name: str) -> ov.Node:
    """Layer normalisation over the last axis: shape unchanged."""
    axes = layers.integers(f"{name}/axes", [-1])
    x = ops.mvn(x, axes, True, _NORM_EPSILON, "inside_sqrt", name=f"{name}/mvn")
    scale = layers.noise(f"{name}/scale", (1, 1, _HIDDEN), std=0.1, mean=1.0)
    x = ops.multiply(x, scale, name=f"{name}/multiply")
    shift = layers.noise(f"{name}/shift", (1, 1, _HIDDEN), std=0.02)
    return ops.add(x, shift, name=f"{name}/add")


def _heads(x: ov.Node, name: str) -> ov.Node:
    """A dense layer split into heads: [1, S, hidden] -> [1, heads, S, hidden / heads]."""
    x = layers.dense(x, name, _HIDDEN)
    split = layers.integers(f"{name}/split/shape", [1, _SEQUENCE, _HEADS, _HEAD])
    x = ops.reshape(x, split, False, name=f"{name}/split")
    order = layers.integers(f"{name}/transpose/order", [0, 2, 1, 3])
    return ops.transpose(x, order, name=f"{name}/transpose")


def _attention(x: ov.Node, mask: ov.Node, name: str) -> ov.Node:
    """Self-attention before its output layer: [1, S, hidden] -> [1, S, hidden]."""
    query, key, value = (_heads(x, f"{name}/{part}") for part in ("query", "key", "value"))
    swap = layers.integers(f"{name}/key_columns/order", [0, 1, 3, 2])
    key = ops.transpose(key, swap, name=f"{name}/key_columns")
    scores = ops.matmul(query, key, False, False, name=f"{name}/scores")
    root = layers.scalar(f"{name}/scale/root", _HEAD**0.5)
    scores = ops.divide(scores, root, name=f"{name}/scale")
    weights = ops.softmax(ops.add(scores, mask, name=f"{name}/mask"), -1, name=f"{name}/softmax")
    context = ops.matmul(weights, value, False, False, name=f"{name}/context")
    order = layers.integers(f"{name}/transpose/order", [0, 2, 1, 3])
    context = ops.transpose(context, order, name=f"{name}/transpose")
    merged = layers.integers(f"{name}/merge/shape", [1, _SEQUENCE, _HIDDEN])
    return ops.reshape(context, merged, False, name=f"{name}/merge")


def _encoder_layer(x: ov.Node, mask: ov.Node, name: str) -> ov.Node:
    """One encoder layer, normalising after each residual: [1, S, hidden] -> the same shape."""
    y = _attention(x, mask, f"{name}/attention")
    y = layers.dense(y, f"{name}/attention/output", _HIDDEN, gain=_ATTENTION_GAIN)
    x = ops.add(y, x, name=f"{name}/attention/residual")
    x = _layer_norm(x, f"{name}/attention/norm")
    y = layers.dense(x, f"{name}/intermediate", _INTERMEDIATE)
    y = ops.gelu(y, "erf", name=f"{name}/intermediate/gelu")
    y = layers.dense(y, f"{name}/output", _HIDDEN)
    return _layer_norm(ops.add(y, x, name=f"{name}/output/residual"), f"{name}/output/norm")


def _pooler(hidden: ov.Node) -> ov.Node:
    """Dense layer and tanh on the first token: [1, S, hidden] -> [1, hidden]."""
    index, axis = layers.integers("pooler/index", 0), layers.integers("pooler/axis", 1)
    first = ops.gather(hidden, index, axis, name="pooler/gather")
    return ops.tanh(layers.dense(first, "pooler/dense", _HIDDEN), name="pooler/tanh")
