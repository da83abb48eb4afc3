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
    on either side, the words of the translation given. Residual connections begin at layer three.
    Departures:

    - Encoder layers 0 and 1 are the two directions of GNMT's bidirectional layer (one layer there).
      Their outputs are added instead of concatenated, so that all layers are equally wide. A single
      layer reads forwards only.
    - The attention has the "general" score of Luong et al. 2015; its keys are computed once. The
      query is the last decoder layer's output of the previous step. The context enters the first
      layer, as in Bahdanau et al. 2015 and TensorFlow's AttentionWrapper, and not all layers.
    - A decoder layer starts from the final state of the encoder layer with the same number.

    2440 operations and 3534 edges, of which 351 become copies of weights. Each layer after the
    second adds 908 and 1384: on either side 15 and 23 for a step, 4 and 2 for its weights.
    """
    source, source_words = recurrent.split_words("source", steps, batch, prefix="encoder/")
    target, target_words = recurrent.split_words("target", steps, batch, prefix="decoder/")
    inputs = recurrent.embed_words(source_words, vocabulary, hidden, prefix="encoder/")
    outputs, states = _encode(inputs, layers, recurrent.zero_state(batch, hidden))
    inputs = recurrent.embed_words(target_words, vocabulary, hidden, prefix="decoder/")
    outputs = _decode(inputs, states, *_keys_and_values(outputs))
    return ov.Model(recurrent.predict(outputs, vocabulary), [source, target], "nmt")


def _encode(inputs: list[ov.Node], layers: int, zeros: State) -> tuple[list[ov.Node], list[State]]:
    """Returns the last layer's output at every step, and the final state of every layer."""
    hidden = inputs[0].shape[1]
    cells = [recurrent.make_cell(f"encoder/lstm{i}", hidden, hidden) for i in range(layers)]
    forwards, backwards = range(len(inputs)), reversed(range(len(inputs)))
    outputs, final = _run_layer(cells[0], inputs, zeros, forwards)
    states = [final]
    if layers > 1:
        backward_outputs, final = _run_layer(cells[1], inputs, zeros, backwards)
        states.append(final)
        outputs = _add_steps(outputs, backward_outputs, f"{cells[1].name}/step{{}}/merge")
    for cell in cells[_FIRST_RESIDUAL:]:
        inputs = outputs
        outputs, final = _run_layer(cell, inputs, zeros, forwards)
        states.append(final)
        outputs = _add_steps(outputs, inputs, f"{cell.name}/step{{}}/residual")
    return outputs, states


def _run_layer(
    cell: Cell, inputs: list[ov.Node], state: State, order: Iterable[int]
) -> tuple[list[ov.Node], State]:
    """Returns a layer's output at every step, and its final state, run in the given order."""
    outputs = {}
    for step in order:
        state = recurrent.advance(cell, step, [inputs[step]], state)
        outputs[step] = state.output
    return [outputs[step] for step in range(len(inputs))], state


def _add_steps(first: list[ov.Node], second: list[ov.Node], name: str) -> list[ov.Node]:
    """Adds two sequences step by step; `name` has a placeholder for the step."""
    pairs = enumerate(zip(first, second, strict=True))
    return [ops.add(x, y, name=name.format(step)) for step, (x, y) in pairs]


def _keys_and_values(outputs: list[ov.Node]) -> tuple[ov.Node, ov.Node]:
    """Builds the keys and values of the attention, [batch, steps, hidden] each."""
    batch, hidden = outputs[0].shape
    rows = ops.concat(outputs, 1, name="attention/concat")
    shape = parts.integers("attention/values/shape", [batch, len(outputs), hidden])
    values = ops.reshape(rows, shape, False, name="attention/values")
    weight = parts.noise("attention/weight", (hidden, hidden), std=1 / math.sqrt(hidden))
    return ops.matmul(values, weight, False, True, name="attention/keys"), values


def _attend(query: ov.Node, keys: ov.Node, values: ov.Node, step: int) -> ov.Node:
    """Builds the attention of one step: [batch, hidden] -> the same shape.

    The operations are those of TensorFlow's LuongAttention, with its changes of rank.
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
        recurrent.make_cell(f"decoder/lstm{i}", hidden if i else 2 * hidden, hidden)
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
