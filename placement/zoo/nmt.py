"""Neural machine translation with attention."""

import math
from collections.abc import Iterable

import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers as parts
from placement.zoo import recurrent
from placement.zoo.recurrent import Cell, State

_FIRST_RESIDUAL = 2


def nmt(
    *,
    layers: int = 2,
    steps: int = 30,
    batch: int = 64,
    hidden: int = 1024,
    vocabulary: int = 32_000,
) -> ov.Model:
    """NMT: source and target int64 [steps, batch] -> `steps` outputs float32 [batch, vocabulary].

    Wu et al. 2016, "Google's Neural Machine Translation System" (GNMT), as Mirhoseini et al. 2018
    place it with 2, 4 and 8 layers: an encoder and a decoder of `layers` LSTM layers each, 30 words
    a side, the words of the translation given. Residual connections begin at the third layer.
    Departures:

    - Encoder layers 0 and 1 are the two directions of GNMT's bidirectional layer (one layer there),
      added up instead of concatenated, so that all layers are of one width. A single layer only
      reads forwards.
    - Attention has Luong et al. 2015's "general" score, its keys computed once. The query is the
      last decoder layer's output of the step before; the context enters the first layer, as in
      Bahdanau et al. 2015 and TensorFlow's AttentionWrapper, and not all of them.
    - A decoder layer starts from the final state of the encoder layer of its number.

    2440 operations and 3534 edges; each layer after the second adds 908 and 1384: on either side 15
    and 23 a step, 4 and 2 for its weights.
    """
    source, source_words = recurrent.words("source", steps, batch, prefix="encoder/")
    target, target_words = recurrent.words("target", steps, batch, prefix="decoder/")
    inputs = recurrent.embeddings(source_words, vocabulary, hidden, prefix="encoder/")
    outputs, states = _encode(inputs, layers, recurrent.zero_state(batch, hidden))
    inputs = recurrent.embeddings(target_words, vocabulary, hidden, prefix="decoder/")
    outputs = _decode(inputs, states, *_sentence(outputs))
    return ov.Model(recurrent.predict(outputs, vocabulary), [source, target], "nmt")


def _encode(inputs: list[ov.Node], layers: int, zeros: State) -> tuple[list[ov.Node], list[State]]:
    """Returns the last layer's output at every step, and the final state of every layer."""
    hidden = inputs[0].shape[1]
    cells = [recurrent.cell(f"encoder/lstm{i}", hidden, hidden) for i in range(layers)]
    forwards, backwards = range(len(inputs)), reversed(range(len(inputs)))
    outputs, final = _run(cells[0], inputs, zeros, forwards)
    states = [final]
    if layers > 1:
        others, final = _run(cells[1], inputs, zeros, backwards)
        states.append(final)
        outputs = _sums(outputs, others, f"{cells[1].name}/step{{}}/merge")
    for cell in cells[_FIRST_RESIDUAL:]:
        inputs = outputs
        outputs, final = _run(cell, inputs, zeros, forwards)
        states.append(final)
        outputs = _sums(outputs, inputs, f"{cell.name}/step{{}}/residual")
    return outputs, states


def _run(
    cell: Cell, inputs: list[ov.Node], state: State, order: Iterable[int]
) -> tuple[list[ov.Node], State]:
    """Runs a layer over all steps in `order`: its outputs by step, and its final state."""
    outputs = {}
    for step in order:
        state = recurrent.advance(cell, step, [inputs[step]], state)
        outputs[step] = state.output
    return [outputs[step] for step in range(len(inputs))], state


def _sums(ones: list[ov.Node], others: list[ov.Node], name: str) -> list[ov.Node]:
    """Adds step by step; `name` has a place for the step."""
    pairs = enumerate(zip(ones, others, strict=True))
    return [ops.add(one, other, name=name.format(step)) for step, (one, other) in pairs]


def _sentence(outputs: list[ov.Node]) -> tuple[ov.Node, ov.Node]:
    """Returns what attention looks through: keys and values, [batch, steps, hidden] each."""
    batch, hidden = outputs[0].shape
    rows = ops.concat(outputs, 1, name="attention/concat")
    shape = parts.integers("attention/values/shape", [batch, len(outputs), hidden])
    values = ops.reshape(rows, shape, False, name="attention/values")
    weight = parts.noise("attention/weight", (hidden, hidden), std=1 / math.sqrt(hidden))
    return ops.matmul(values, weight, False, True, name="attention/keys"), values


def _attend(query: ov.Node, keys: ov.Node, values: ov.Node, step: int) -> ov.Node:
    """Averages values by how their keys fit: [batch, hidden] -> the same shape.

    Spelled out as in TensorFlow's LuongAttention, with its changes of rank.
    """
    name = f"attention/step{step}"
    row = parts.unsqueeze(query, f"{name}/query", 1)
    scores = ops.matmul(row, keys, False, True, name=f"{name}/scores")
    scores = parts.squeeze(scores, f"{name}/flat_scores", 1)
    weights = ops.softmax(scores, 1, name=f"{name}/weights")
    weights = parts.unsqueeze(weights, f"{name}/row", 1)
    context = ops.matmul(weights, values, False, False, name=f"{name}/context")
    return parts.squeeze(context, f"{name}/flat_context", 1)


def _decode(
    inputs: list[ov.Node], states: list[State], keys: ov.Node, values: ov.Node
) -> list[ov.Node]:
    """Returns the last layer's output at every step, its layers starting from `states`."""
    hidden = inputs[0].shape[1]
    cells = [
        recurrent.cell(f"decoder/lstm{i}", hidden if i else 2 * hidden, hidden)
        for i in range(len(states))
    ]
    outputs = []
    for step, x in enumerate(inputs):
        context = [_attend(states[-1].output, keys, values, step)]
        for layer, cell in enumerate(cells):
            states[layer] = recurrent.advance(cell, step, [x, *context], states[layer])
            context, read, x = [], x, states[layer].output
            if layer >= _FIRST_RESIDUAL:
                x = ops.add(x, read, name=f"{cell.name}/step{step}/residual")
        outputs.append(x)
    return outputs
