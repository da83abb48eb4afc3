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
    # Words, token types and positions: [B, S] -> [B, S, hidden].
    x = parts.embedding(input_ids, "embeddings/word", (vocabulary, hidden), std=_WORD_STD)
    table = (_TOKEN_TYPES, hidden)
    types = parts.embedding(token_type_ids, "embeddings/token_type", table, std=_SHARED_STD)
    positions = parts.noise("embeddings/position/weight", (1, length, hidden), std=_SHARED_STD)
    x = ops.add(x, types, name="embeddings/token_type/add")
    x = ops.add(x, positions, name="embeddings/position/add")
    x = parts.layer_norm(x, "embeddings/norm", epsilon=_NORM_EPSILON)

    # The additive mask, 0 where attended and float16's lowest elsewhere: [B, S] -> [B, 1, 1, S].
    mask = attention_mask
    for axis in (1, 2):
        mask = parts.unsqueeze(mask, f"mask/unsqueeze{axis}", axis)
    mask = ops.convert(mask, "f32", name="mask/to_float")
    mask = ops.subtract(parts.scalar("mask/one", 1.0), mask, name="mask/invert")
    is_hidden = ops.convert(mask, "boolean", name="mask/to_boolean")
    mask = ops.select(is_hidden, parts.scalar("mask/lowest", -65504.0), mask, name="mask/fill")

    for layer in range(layers):
        name = f"encoder/{layer}/attention"
        query, key, value = (
            parts.split_heads(x, batch, length, heads, f"{name}/{part}")
            for part in ("query", "key", "value")
        )
        swap = parts.integers(f"{name}/key_columns/order", [0, 1, 3, 2])
        key = ops.transpose(key, swap, name=f"{name}/key_columns")
        scores = ops.matmul(query, key, False, False, name=f"{name}/scores")
        root = parts.scalar(f"{name}/scale/root", query.shape[-1] ** 0.5)
        scores = ops.divide(scores, root, name=f"{name}/scale")
        scores = ops.add(scores, mask, name=f"{name}/mask")
        weights = ops.softmax(scores, -1, name=f"{name}/softmax")
        context = ops.matmul(weights, value, False, False, name=f"{name}/context")
        y = parts.merge_heads(context, x.shape, name)
        y = parts.dense(y, f"{name}/output", hidden, gain=_ATTENTION_GAIN)
        x = ops.add(y, x, name=f"{name}/residual")
        x = parts.layer_norm(x, f"{name}/norm", epsilon=_NORM_EPSILON)
        name = f"encoder/{layer}"
        y = parts.dense(x, f"{name}/intermediate", _FEED_FORWARD * hidden)
        y = ops.gelu(y, "erf", name=f"{name}/intermediate/gelu")
        y = parts.dense(y, f"{name}/output", hidden)
        x = ops.add(y, x, name=f"{name}/output/residual")
        x = parts.layer_norm(x, f"{name}/output/norm", epsilon=_NORM_EPSILON)

    # A dense layer and tanh on the first token: [B, S, hidden] -> [B, hidden].
    index, axis = parts.integers("pooler/index", 0), parts.integers("pooler/axis", 1)
    first = ops.gather(x, index, axis, name="pooler/gather")
    pooled = ops.tanh(parts.dense(first, "pooler/dense", hidden), name="pooler/tanh")
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
