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

    # The number of earlier tokens, and the positions int64 [n] of the next ones.
    start = ops.constant(np.zeros(1, np.int32), name="length/start")  # the CPU keeps no int64
    read = ops.read_value(start, "length", ov.Type.i32, ov.PartialShape([1]))
    read.set_friendly_name("length/read")
    sizes = ops.shape_of(ids, name="length/sizes")
    index, axis = parts.integers("length/index", 1), parts.integers("length/axis", 0)
    count = ops.gather(sizes, index, axis, name="length/count")
    added = ops.convert(count, "i32", name="length/added")
    sinks = [ops.assign(ops.add(read, added, name="length/sum"), "length")]
    sinks[0].set_friendly_name("length/assign")
    first, step = parts.integers("positions/first", 0), parts.integers("positions/step", 1)
    numbers = ops.range(first, count, step, "i64", name="positions/numbers")
    past = ops.convert(read, "i64", name="positions/past")
    positions = ops.add(numbers, past, name="positions/sum")

    words = parts.embedding(ids, "embeddings/word", (vocabulary, hidden), std=_WORD_STD)
    places = parts.embedding(positions, "embeddings/position", (context, hidden), std=_POSITION_STD)
    x = ops.add(words, places, name="embeddings/add")

    def append(x: ov.Node, name: str) -> ov.Node:
        """Appends n tokens to a cache: [B, heads, n, d] -> [B, heads, past + n, d]."""
        size = hidden // heads
        start = ops.constant(np.zeros((batch, heads, 0, size), np.float32), name=f"{name}/start")
        shape = ov.PartialShape([batch, heads, -1, size])
        read = ops.read_value(start, name, ov.Type.f32, shape)
        read.set_friendly_name(f"{name}/read")
        appended = ops.concat([read, x], 2, name=f"{name}/append")
        sinks.append(ops.assign(appended, name))
        sinks[-1].set_friendly_name(f"{name}/assign")
        return appended

    for layer in range(layers):
        name = f"layer/{layer}/attention"
        y = parts.layer_norm(x, f"{name}/norm", epsilon=_NORM_EPSILON)
        query, key, value = (
            parts.split_heads(y, batch, -1, heads, f"{name}/{part}")
            for part in ("query", "key", "value")
        )
        keys, values = append(key, f"{name}/keys"), append(value, f"{name}/values")
        scores = ops.matmul(query, keys, False, True, name=f"{name}/scores")
        root = parts.scalar(f"{name}/scale/root", (hidden // heads) ** 0.5)
        scores = ops.divide(scores, root, name=f"{name}/scale")
        # A token attends itself and earlier ones: boolean [n, past + n].
        mask = f"{name}/mask"
        sizes = ops.shape_of(keys, name=f"{mask}/sizes")
        index, axis = parts.integers(f"{mask}/index", 2), parts.integers(f"{mask}/axis", 0)
        count = ops.gather(sizes, index, axis, name=f"{mask}/count")
        first, step = parts.integers(f"{mask}/first", 0), parts.integers(f"{mask}/step", 1)
        columns = ops.range(first, count, step, "i64", name=f"{mask}/columns")
        rows = parts.unsqueeze(positions, f"{mask}/rows", 1)
        is_visible = ops.less_equal(columns, rows, name=f"{mask}/is_visible")
        lowest = parts.scalar(f"{mask}/lowest", _LOWEST)
        scores = ops.select(is_visible, scores, lowest, name=f"{mask}/fill")
        weights = ops.softmax(scores, -1, name=f"{name}/softmax")
        y = ops.matmul(weights, values, False, False, name=f"{name}/context")
        y = parts.merge_heads(y, [batch, -1, hidden], name)
        y = parts.dense(y, f"{name}/output", hidden)
        x = ops.add(x, y, name=f"{name}/residual")
        name = f"layer/{layer}"
        y = parts.layer_norm(x, f"{name}/norm", epsilon=_NORM_EPSILON)
        y = parts.dense(y, f"{name}/intermediate", _FEED_FORWARD * hidden)
        y = ops.gelu(y, "tanh", name=f"{name}/intermediate/gelu")
        y = parts.dense(y, f"{name}/output", hidden)
        x = ops.add(x, y, name=f"{name}/output/residual")

    last, axis = parts.integers("last/index", -1), parts.integers("last/axis", 1)
    x = ops.gather(parts.layer_norm(x, "norm", epsilon=_NORM_EPSILON), last, axis, name="last")
    logits = parts.result(parts.dense(x, "output", vocabulary), "logits")
    return ov.Model([logits], sinks, [ids], "decoder")
