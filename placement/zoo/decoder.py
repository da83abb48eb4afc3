"""A decoder of text that keeps the keys and values of earlier tokens in variables."""

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers as parts

_FEED_FORWARD = 4  # times as wide as the rest
_NORM_EPSILON = 1e-5

_WORD_STD = 1.0
_POSITION_STD = 0.3
_LOWEST = -65504.0  # the lowest float16, as the score of a token that must not be attended


def decoder(
    *,
    layers: int = 4,
    hidden: int = 256,
    heads: int = 4,
    context: int = 1024,
    batch: int = 1,
    vocabulary: int = 4000,
) -> ov.Model:
    """GPT-like decoder with a stateful KV cache; the number of tokens is dynamic.

    ids: int64 [batch, n], the next n tokens of every sequence. logits: float32 [batch, vocabulary],
    of the token that follows.

    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3 (GPT-2):
    learned positions, layer normalisation before each block and after the last, feed-forward layers
    four times as wide as the others. Departures: the embeddings and the output layer have weights
    of their own, the sizes are smaller, and only the last token gets logits.

    The state holds the keys and values of all earlier tokens, [batch, heads, past, hidden / heads]
    for each layer, and the number of these tokens. An inference appends n tokens to it. So the
    first inference takes a prompt, and every later one a single token. The number has a variable of
    its own so that positions do not depend on a cache, which would tie the embedding to a layer.
    Every layer makes its own mask from the size of its cache for the same reason.
    44 operations and 45 edges, plus 98 and 104 for each layer.

    Args:
      layers: layers of the decoder.
      hidden: width of a token's embedding, a multiple of the heads.
      heads: heads of every attention.
      context: the largest number of tokens of a sequence.
      batch: sequences.
      vocabulary: words with an embedding.

    Raises:
      UserError: the heads do not divide `hidden`.
    """
    parts.check_heads("decoder", hidden, heads)
    ids = parts.parameter("ids", (batch, ov.Dimension(1, context)), ov.Type.i64)
    positions, length = _positions(ids)
    words = parts.embedding(ids, "embeddings/word", (vocabulary, hidden), std=_WORD_STD)
    places = parts.embedding(positions, "embeddings/position", (context, hidden), std=_POSITION_STD)
    x = ops.add(words, places, name="embeddings/add")
    sinks = [length]
    for layer in range(layers):
        x, assigns = _layer(x, positions, batch, heads, f"layer/{layer}")
        sinks += assigns
    last, axis = parts.integers("last/index", -1), parts.integers("last/axis", 1)
    x = ops.gather(parts.layer_norm(x, "norm", epsilon=_NORM_EPSILON), last, axis, name="last")
    logits = parts.result(parts.dense(x, "output", vocabulary), "logits")
    return ov.Model([logits], sinks, [ids], "decoder")


def _positions(ids: ov.Node) -> tuple[ov.Node, ov.Node]:
    """Returns the positions int64 [n] of the tokens, and the Assign of their number so far."""
    # The CPU plug-in keeps no int64 variables.
    start = ops.constant(np.zeros(1, np.int32), name="length/start")
    read = ops.read_value(start, "length", ov.Type.i32, ov.PartialShape([1]))
    read.set_friendly_name("length/read")
    sizes = ops.shape_of(ids, name="length/sizes")
    index, axis = parts.integers("length/index", 1), parts.integers("length/axis", 0)
    count = ops.gather(sizes, index, axis, name="length/count")
    added = ops.convert(count, "i32", name="length/added")
    assign = ops.assign(ops.add(read, added, name="length/sum"), "length")
    assign.set_friendly_name("length/assign")
    first, step = parts.integers("positions/first", 0), parts.integers("positions/step", 1)
    numbers = ops.range(first, count, step, "i64", name="positions/numbers")
    past = ops.convert(read, "i64", name="positions/past")
    return ops.add(numbers, past, name="positions/sum"), assign


def _append(x: ov.Node, name: str) -> tuple[ov.Node, ov.Node]:
    """Appends n tokens to a cache: [B, heads, n, d] -> [B, heads, past + n, d], and its Assign."""
    shape = x.get_output_partial_shape(0)
    batch, heads, size = (shape[axis].get_length() for axis in (0, 1, 3))
    start = ops.constant(np.zeros((batch, heads, 0, size), np.float32), name=f"{name}/start")
    allowed = ov.PartialShape([batch, heads, -1, size])
    read = ops.read_value(start, name, ov.Type.f32, allowed)
    read.set_friendly_name(f"{name}/read")
    appended = ops.concat([read, x], 2, name=f"{name}/append")
    assign = ops.assign(appended, name)
    assign.set_friendly_name(f"{name}/assign")
    return appended, assign


def _is_visible(keys: ov.Node, positions: ov.Node, name: str) -> ov.Node:
    """Returns which keys each token attends, itself and earlier ones: boolean [n, past + n]."""
    sizes = ops.shape_of(keys, name=f"{name}/sizes")
    index, axis = parts.integers(f"{name}/index", 2), parts.integers(f"{name}/axis", 0)
    count = ops.gather(sizes, index, axis, name=f"{name}/count")
    first, step = parts.integers(f"{name}/first", 0), parts.integers(f"{name}/step", 1)
    columns = ops.range(first, count, step, "i64", name=f"{name}/columns")
    rows = parts.unsqueeze(positions, f"{name}/rows", 1)
    return ops.less_equal(columns, rows, name=f"{name}/is_visible")


def _layer(
    x: ov.Node, positions: ov.Node, batch: int, heads: int, name: str
) -> tuple[ov.Node, list[ov.Node]]:
    """Builds a layer: [B, n, hidden] -> the same shape, and the Assigns of its caches."""
    hidden = parts.last_size(x)
    y = parts.layer_norm(x, f"{name}/attention/norm", epsilon=_NORM_EPSILON)
    query, key, value = (
        parts.split_heads(y, batch, -1, heads, f"{name}/attention/{part}")
        for part in ("query", "key", "value")
    )
    keys, assign_keys = _append(key, f"{name}/attention/keys")
    values, assign_values = _append(value, f"{name}/attention/values")
    scores = ops.matmul(query, keys, False, True, name=f"{name}/attention/scores")
    root = parts.scalar(f"{name}/attention/scale/root", (hidden // heads) ** 0.5)
    scores = ops.divide(scores, root, name=f"{name}/attention/scale")
    is_visible = _is_visible(keys, positions, f"{name}/attention/mask")
    lowest = parts.scalar(f"{name}/attention/mask/lowest", _LOWEST)
    scores = ops.select(is_visible, scores, lowest, name=f"{name}/attention/mask/fill")
    weights = ops.softmax(scores, -1, name=f"{name}/attention/softmax")
    y = ops.matmul(weights, values, False, False, name=f"{name}/attention/context")
    y = parts.merge_heads(y, [batch, -1, hidden], f"{name}/attention")
    y = parts.dense(y, f"{name}/attention/output", hidden)
    x = ops.add(x, y, name=f"{name}/attention/residual")
    y = parts.layer_norm(x, f"{name}/norm", epsilon=_NORM_EPSILON)
    y = parts.dense(y, f"{name}/intermediate", _FEED_FORWARD * hidden)
    y = ops.gelu(y, "tanh", name=f"{name}/intermediate/gelu")
    y = parts.dense(y, f"{name}/output", hidden)
    x = ops.add(x, y, name=f"{name}/output/residual")
    return x, [assign_keys, assign_values]
