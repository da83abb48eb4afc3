"""Unrolled recurrent networks, a language model and a translator.

Words are time-major, [steps, batch]. Every step has separate operations for its word, its cells and
its probabilities. A weight is one Constant and Convert that all steps read. The names of operations
show what belongs together; `placement.solvers.heuristics.human_expert` reads them:

    [side/]embedding/...          the table, and the words of every step
    [side/]lstm{layer}/...        weight and bias of a layer's cell
    [side/]lstm{layer}/step{t}/.. the cell's operations at step t
    attention/...  softmax/...    on top of the last layer

A network with an encoder and a decoder has 'encoder' or 'decoder' as the side. Layers and steps
count from 0.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers as parts

# A cell's outputs are far below one; the gain keeps the signal from fading with depth. Recurrent
# weights with such a gain would make the network chaotic: rounding errors (bf16, f16) would grow
# from step to step.
_INPUT_GAIN = 1.5
_RECURRENT_GAIN = 0.5
_LOGIT_GAIN = 2.0
_BIAS_STD = 0.05
_FORGET_BIAS = 1.0

_FIRST_RESIDUAL = 2  # layer of `nmt`

_GATES = ("input_gate", "forget_gate", "candidate", "output_gate")


class Cell(NamedTuple):
    """The weights of an LSTM layer, which all its steps share."""

    name: str
    weight: ov.Node  # [4 hidden, inputs + hidden]
    bias: ov.Node  # [1, 4 hidden]


class State(NamedTuple):
    """The state of an LSTM layer after a step."""

    output: ov.Node  # [batch, hidden]
    memory: ov.Node  # [batch, hidden]


def split_words(
    name: str, steps: int, batch: int, *, prefix: str = ""
) -> tuple[ov.Node, list[ov.Node]]:
    """Builds an input int64 [steps, batch], and the words int32 [batch] of every step."""
    ids = parts.parameter(name, (steps, batch), ov.Type.i64)
    name = f"{prefix}embedding"
    index = ops.convert(ids, "i32", name=f"{name}/ids")
    rows = ops.split(index, parts.integers(f"{name}/split/axis", 0), steps, name=f"{name}/split")
    return ids, [
        parts.squeeze(row, f"{name}/step{t}/squeeze", 0) for t, row in enumerate(rows.outputs())
    ]


def embed_words(
    step_words: list[ov.Node], vocabulary: int, hidden: int, *, prefix: str = ""
) -> list[ov.Node]:
    """Looks up the words of every step in a table: int32 [batch] -> [batch, hidden] each."""
    name = f"{prefix}embedding"
    table = parts.noise(f"{name}/weight", (vocabulary, hidden), std=1.0)
    return [
        ops.gather(
            table, ids, parts.integers(f"{name}/step{t}/axis", 0), name=f"{name}/step{t}/gather"
        )
        for t, ids in enumerate(step_words)
    ]


def zero_state(batch: int, hidden: int) -> State:
    """Builds the state before the first step: a Constant that every layer reads twice."""
    zeros = parts.compressed("zero_state", np.zeros((batch, hidden), np.float32))
    return State(zeros, zeros)


def make_cell(name: str, inputs: int, hidden: int) -> Cell:
    """Builds the weights of an LSTM layer that reads `inputs` numbers besides its own output."""
    shape = (4 * hidden, inputs + hidden)
    gains = np.repeat([_INPUT_GAIN, _RECURRENT_GAIN], [inputs, hidden])
    weight = parts.noise(f"{name}/weight", shape, std=gains / math.sqrt(shape[1]))
    mean = np.repeat([_FORGET_BIAS if gate == "forget_gate" else 0.0 for gate in _GATES], hidden)
    return Cell(
        name, weight, parts.noise(f"{name}/bias", (1, 4 * hidden), std=_BIAS_STD, mean=mean)
    )


def advance(cell: Cell, step: int, inputs: list[ov.Node], state: State) -> State:
    """Builds one step of an LSTM layer on inputs [batch, ...]: 14 operations with 21 inputs.

    Hochreiter and Schmidhuber 1997 with forget gates and without peepholes, with the operations of
    TensorFlow's BasicLSTMCell; its forget bias is part of the bias here.
    """
    name = f"{cell.name}/step{step}"
    joined = ops.concat([*inputs, state.output], 1, name=f"{name}/concat")
    product = ops.matmul(joined, cell.weight, False, True, name=f"{name}/matmul")
    gates = ops.add(product, cell.bias, name=f"{name}/bias_add")
    axis = parts.integers(f"{name}/split/axis", 1)
    columns = ops.split(gates, axis, len(_GATES), name=f"{name}/split").outputs()
    write, forget, candidate, read = (
        (ops.tanh if gate == "candidate" else ops.sigmoid)(part, name=f"{name}/{gate}")
        for gate, part in zip(_GATES, columns, strict=True)
    )
    old_memory = ops.multiply(forget, state.memory, name=f"{name}/keep")
    new_memory = ops.multiply(write, candidate, name=f"{name}/write")
    memory = ops.add(old_memory, new_memory, name=f"{name}/memory")
    output = ops.multiply(read, ops.tanh(memory, name=f"{name}/tanh"), name=f"{name}/output")
    return State(output, memory)


def run_layer(
    cell: Cell, inputs: list[ov.Node], state: State, order: Iterable[int]
) -> tuple[list[ov.Node], State]:
    """Builds all steps of an LSTM layer in an order; returns the outputs and the final state."""
    outputs = list(inputs)
    for step in order:
        state = advance(cell, step, [inputs[step]], state)
        outputs[step] = state.output
    return outputs, state


def predict(outputs: list[ov.Node], vocabulary: int) -> list[ov.Node]:
    """Builds the next word's probabilities at every step: [batch, C] -> [batch, vocabulary].

    The Results have the names 'probabilities0', 'probabilities1', ...
    """
    shape = (vocabulary, outputs[0].shape[1])
    std = _LOGIT_GAIN / math.sqrt(shape[1])
    weight = parts.noise("softmax/weight", shape, std=std)
    bias = parts.noise("softmax/bias", (1, vocabulary), std=_BIAS_STD)
    results = []
    for t, x in enumerate(outputs):
        name = f"softmax/step{t}"
        logits = ops.matmul(x, weight, False, True, name=f"{name}/matmul")
        logits = ops.add(logits, bias, name=f"{name}/bias_add")
        probabilities = ops.softmax(logits, 1, name=f"{name}/softmax")
        results.append(parts.result(probabilities, f"probabilities{t}"))
    return results


def rnnlm(
    *,
    layers: int = 2,
    steps: int = 35,
    batch: int = 64,
    hidden: int = 2048,
    vocabulary: int = 10_000,
) -> ov.Model:
    """RNNLM: words int64 [steps, batch] -> `steps` outputs float32 [batch, vocabulary].

    Jozefowicz et al. 2016, "Exploring the Limits of Language Modeling", as Mirhoseini et al. 2018
    place it: 2 LSTM layers of 2048, batch 64. The vocabulary is not theirs: 10,000 words and 35
    steps are those of Zaremba et al. 2014 on the Penn treebank. Inference only.
    1280 operations and 1866 edges, of which 241 become copies of weights. Each layer has 14 and 21
    for a step, 4 and 2 for its weights.
    """
    ids, step_words = split_words("words", steps, batch)
    inputs = embed_words(step_words, vocabulary, hidden)
    zeros = zero_state(batch, hidden)
    for layer in range(layers):
        cell = make_cell(f"lstm{layer}", hidden, hidden)
        inputs, _ = run_layer(cell, inputs, zeros, range(steps))
    return ov.Model(predict(inputs, vocabulary), [ids], "rnnlm")


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
      layer, as in Bahdanau et al. 2015 and TensorFlow's AttentionWrapper, and not all parts.
    - A decoder layer starts from the final state of the encoder layer with the same number.

    2440 operations and 3534 edges, of which 351 become copies of weights. Each layer after the
    second adds 908 and 1384: on either side 15 and 23 for a step, 4 and 2 for its weights.
    """

    def embed(words: list[ov.Node], side: str) -> list[ov.Node]:
        return embed_words(words, vocabulary, hidden, prefix=f"{side}/")

    # The encoder; `states` are the final states of its parts.
    source, source_words = split_words("source", steps, batch, prefix="encoder/")
    target, target_words = split_words("target", steps, batch, prefix="decoder/")
    inputs, zeros = embed(source_words, "encoder"), zero_state(batch, hidden)
    cells = [make_cell(f"encoder/lstm{i}", hidden, hidden) for i in range(layers)]
    outputs, final = run_layer(cells[0], inputs, zeros, range(steps))
    states = [final]
    for layer, cell in enumerate(cells[1:], 1):
        is_residual = layer >= _FIRST_RESIDUAL  # else it reads the sentence backwards, as layer 0
        order = range(steps) if is_residual else reversed(range(steps))
        added, final = run_layer(cell, outputs if is_residual else inputs, zeros, order)
        states.append(final)
        kind = "residual" if is_residual else "merge"
        pair = (added, outputs) if is_residual else (outputs, added)
        outputs = [
            ops.add(x, y, name=f"{cell.name}/step{step}/{kind}")
            for step, (x, y) in enumerate(zip(*pair, strict=True))
        ]

    # The keys and values of the attention, [batch, steps, hidden] each.
    rows = ops.concat(outputs, 1, name="attention/concat")
    shape = parts.integers("attention/values/shape", [batch, steps, hidden])
    values = ops.reshape(rows, shape, False, name="attention/values")
    weight = parts.noise("attention/weight", (hidden, hidden), std=1 / math.sqrt(hidden))
    keys = ops.matmul(values, weight, False, True, name="attention/keys")

    # The decoder, whose layers start from `states`.
    cells = [
        make_cell(f"decoder/lstm{i}", hidden if i else 2 * hidden, hidden) for i in range(layers)
    ]
    outputs = []
    for step, x in enumerate(embed(target_words, "decoder")):
        # The operations of TensorFlow's LuongAttention, with its changes of rank.
        name = f"attention/step{step}"
        row = parts.unsqueeze(states[-1].output, f"{name}/query", 1)
        scores = ops.matmul(row, keys, False, True, name=f"{name}/scores")
        scores = parts.squeeze(scores, f"{name}/flat_scores", 1)
        weights = ops.softmax(scores, 1, name=f"{name}/weights")
        weights = parts.unsqueeze(weights, f"{name}/row", 1)
        context = ops.matmul(weights, values, False, False, name=f"{name}/context")
        read = [x, parts.squeeze(context, f"{name}/flat_context", 1)]
        for layer, cell in enumerate(cells):
            states[layer] = advance(cell, step, read, states[layer])
            x = states[layer].output
            if layer >= _FIRST_RESIDUAL:
                x = ops.add(x, read[0], name=f"{cell.name}/step{step}/residual")
            read = [x]
        outputs.append(x)
    return ov.Model(predict(outputs, vocabulary), [source, target], "nmt")
