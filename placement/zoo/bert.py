"""BERT for text."""

import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers as parts

_FEED_FORWARD = 4  # times as wide as the rest
_TOKEN_TYPES = 2
_NORM_EPSILON = 1e-12

# Words outweigh what all sequences share (positions, token types), so that inputs stay apart.
_WORD_STD = 0.04
_SHARED_STD = 0.005
# Near-uniform attention averages over the sequence; without a gain it would change nothing.
_ATTENTION_GAIN = 2.0


def bert(
    *,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    length: int = 128,
    batch: int = 1,
    vocabulary: int = 30_522,
) -> ov.Model:
    """BERT with pooler, all shapes static.

    input_ids, attention_mask, token_type_ids: int64 [batch, length].
    last_hidden_state: float32 [batch, length, hidden]; pooler_output: float32 [batch, hidden].

    Devlin et al. 2018, "BERT", section 3, in the layout Hugging Face's model has when exported:
    the position embeddings of the sequence folded into one constant; layer normalisation as MVN,
    scale and shift; the keys transposed by a separate operation. The feed-forward layers are four
    times as wide as the others. No constants are shared and no shapes are computed in the graph,
    because a cut at such an edge makes shapes dynamic.
    49 operations and 48 edges, plus 80 and 85 for each layer.

    Args:
      layers: layers of the encoder.
      hidden: width of a token's embedding, a multiple of the heads.
      heads: heads of every attention.
      length: tokens in a sequence; may exceed the paper's 512.
      batch: sequences.
      vocabulary: words with an embedding.

    Raises:
      UserError: the heads do not divide `hidden`.
    """
    parts.check_heads("bert", hidden, heads)
    input_ids, attention_mask, token_type_ids = (
        parts.parameter(name, (batch, length), ov.Type.i64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    words = parts.embedding(input_ids, "embeddings/word", (vocabulary, hidden), std=_WORD_STD)
    x = _embeddings(words, token_type_ids)
    mask = _additive_mask(attention_mask)
    for layer in range(layers):
        x = _encoder_layer(x, mask, heads, f"encoder/{layer}")
    # A dense layer and tanh on the first token: [B, S, hidden] -> [B, hidden].
    index, axis = parts.integers("pooler/index", 0), parts.integers("pooler/axis", 1)
    first = ops.gather(x, index, axis, name="pooler/gather")
    pooled = ops.tanh(parts.dense(first, "pooler/dense", x.shape[-1]), name="pooler/tanh")
    outputs = [parts.result(x, "last_hidden_state"), parts.result(pooled, "pooler_output")]
    return ov.Model(outputs, [input_ids, attention_mask, token_type_ids], "bert")


def bert_base() -> ov.Model:
    """BERT-base: `bert` with the paper's sizes (L=12, H=768, A=12), batch 1, sequence 128.

    1009 operations and 1068 edges; 444 operations without constants and their Converts. Duan et
    al. 2024 count 1009 and 1071 in their export.
    """
    model = bert()
    model.set_friendly_name("bert_base")
    return model


def _embeddings(words: ov.Node, token_type_ids: ov.Node) -> ov.Node:
    """Adds token types and positions, and normalises: [B, S, hidden] -> the same shape."""
    _, length, hidden = words.shape
    table = (_TOKEN_TYPES, hidden)
    types = parts.embedding(token_type_ids, "embeddings/token_type", table, std=_SHARED_STD)
    positions = parts.noise("embeddings/position/weight", (1, length, hidden), std=_SHARED_STD)
    total = ops.add(words, types, name="embeddings/token_type/add")
    total = ops.add(total, positions, name="embeddings/position/add")
    return parts.layer_norm(total, "embeddings/norm", epsilon=_NORM_EPSILON)


def _additive_mask(attention_mask: ov.Node) -> ov.Node:
    """Makes 0 where attended, float16's lowest elsewhere: int64 [B, S] -> [B, 1, 1, S]."""
    x = attention_mask
    for axis in (1, 2):
        x = parts.unsqueeze(x, f"mask/unsqueeze{axis}", axis)
    x = ops.convert(x, "f32", name="mask/to_float")
    inverted = ops.subtract(parts.scalar("mask/one", 1.0), x, name="mask/invert")
    hidden = ops.convert(inverted, "boolean", name="mask/to_boolean")
    return ops.select(hidden, parts.scalar("mask/lowest", -65504.0), inverted, name="mask/fill")


def _attention(x: ov.Node, mask: ov.Node, heads: int, name: str) -> ov.Node:
    """Builds self-attention before its output layer: [B, S, hidden] -> the same shape."""
    batch, length, _ = x.shape
    query, key, value = (
        parts.split_heads(x, batch, length, heads, f"{name}/{part}")
        for part in ("query", "key", "value")
    )
    swap = parts.integers(f"{name}/key_columns/order", [0, 1, 3, 2])
    key = ops.transpose(key, swap, name=f"{name}/key_columns")
    scores = ops.matmul(query, key, False, False, name=f"{name}/scores")
    root = parts.scalar(f"{name}/scale/root", query.shape[-1] ** 0.5)
    scores = ops.divide(scores, root, name=f"{name}/scale")
    weights = ops.softmax(ops.add(scores, mask, name=f"{name}/mask"), -1, name=f"{name}/softmax")
    context = ops.matmul(weights, value, False, False, name=f"{name}/context")
    return parts.merge_heads(context, x.shape, name)


def _encoder_layer(x: ov.Node, mask: ov.Node, heads: int, name: str) -> ov.Node:
    """Builds an encoder layer, normalising after residuals: [B, S, hidden] -> the same shape."""
    hidden = x.shape[-1]
    y = _attention(x, mask, heads, f"{name}/attention")
    y = parts.dense(y, f"{name}/attention/output", hidden, gain=_ATTENTION_GAIN)
    x = ops.add(y, x, name=f"{name}/attention/residual")
    x = parts.layer_norm(x, f"{name}/attention/norm", epsilon=_NORM_EPSILON)
    y = parts.dense(x, f"{name}/intermediate", _FEED_FORWARD * hidden)
    y = ops.gelu(y, "erf", name=f"{name}/intermediate/gelu")
    y = parts.dense(y, f"{name}/output", hidden)
    x = ops.add(y, x, name=f"{name}/output/residual")
    return parts.layer_norm(x, f"{name}/output/norm", epsilon=_NORM_EPSILON)
