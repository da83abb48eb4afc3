"""Unrolled recurrent networks: every step of every layer has separate operations.

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
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers

# A cell's outputs are far below one; the gain keeps the signal from fading with depth. Recurrent
# weights with such a gain would make the network chaotic: rounding errors (bf16, f16) would grow
# from step to step.
_INPUT_GAIN = 1.5
_RECURRENT_GAIN = 0.5
_LOGIT_GAIN = 2.0
_BIAS_STD = 0.05
_FORGET_BIAS = 1.0

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
    ids = layers.parameter(name, (steps, batch), ov.Type.i64)
    name = f"{prefix}embedding"
    index = ops.convert(ids, "i32", name=f"{name}/ids")
    parts = ops.split(index, layers.integers(f"{name}/split/axis", 0), steps, name=f"{name}/split")
    return ids, [
        layers.squeeze(part, f"{name}/step{t}/squeeze", 0) for t, part in enumerate(parts.outputs())
    ]


def embed_words(
    step_words: list[ov.Node], vocabulary: int, hidden: int, *, prefix: str = ""
) -> list[ov.Node]:
    """Looks up the words of every step in a table: int32 [batch] -> [batch, hidden] each."""
    name = f"{prefix}embedding"
    table = layers.noise(f"{name}/weight", (vocabulary, hidden), std=1.0)
    return [
        ops.gather(
            table, ids, layers.integers(f"{name}/step{t}/axis", 0), name=f"{name}/step{t}/gather"
        )
        for t, ids in enumerate(step_words)
    ]


def zero_state(batch: int, hidden: int) -> State:
    """Builds the state before the first step: a Constant that every layer reads twice."""
    zeros = layers.compressed("zero_state", np.zeros((batch, hidden), np.float32))
    return State(zeros, zeros)


def make_cell(name: str, inputs: int, hidden: int) -> Cell:
    """Builds the weights of an LSTM layer that reads `inputs` numbers besides its own output."""
    shape = (4 * hidden, inputs + hidden)
    gains = np.repeat([_INPUT_GAIN, _RECURRENT_GAIN], [inputs, hidden])
    weight = layers.noise(f"{name}/weight", shape, std=gains / math.sqrt(shape[1]))
    mean = np.repeat([_FORGET_BIAS if gate == "forget_gate" else 0.0 for gate in _GATES], hidden)
    return Cell(
        name, weight, layers.noise(f"{name}/bias", (1, 4 * hidden), std=_BIAS_STD, mean=mean)
    )


def advance(cell: Cell, step: int, inputs: list[ov.Node], state: State) -> State:
    """Builds one step of an LSTM layer: 14 operations with 21 inputs.

    Hochreiter and Schmidhuber 1997 with forget gates and without peepholes, with the operations of
    TensorFlow's BasicLSTMCell; its forget bias is part of the bias here.

    Args:
      cell: the layer.
      step: the number of the step.
      inputs: the layer's inputs, [batch, ...] each.
      state: the state after the previous step.
    """
    name = f"{cell.name}/step{step}"
    joined = ops.concat([*inputs, state.output], 1, name=f"{name}/concat")
    product = ops.matmul(joined, cell.weight, False, True, name=f"{name}/matmul")
    gates = ops.add(product, cell.bias, name=f"{name}/bias_add")
    axis = layers.integers(f"{name}/split/axis", 1)
    parts = ops.split(gates, axis, len(_GATES), name=f"{name}/split").outputs()
    write, forget, candidate, read = (
        (ops.tanh if gate == "candidate" else ops.sigmoid)(part, name=f"{name}/{gate}")
        for gate, part in zip(_GATES, parts, strict=True)
    )
    old_memory = ops.multiply(forget, state.memory, name=f"{name}/keep")
    new_memory = ops.multiply(write, candidate, name=f"{name}/write")
    memory = ops.add(old_memory, new_memory, name=f"{name}/memory")
    output = ops.multiply(read, ops.tanh(memory, name=f"{name}/tanh"), name=f"{name}/output")
    return State(output, memory)


def predict(outputs: list[ov.Node], vocabulary: int) -> list[ov.Node]:
    """Builds the next word's probabilities at every step: [batch, C] -> [batch, vocabulary].

    The Results have the names 'probabilities0', 'probabilities1', ...
    """
    shape = (vocabulary, outputs[0].shape[1])
    std = _LOGIT_GAIN / math.sqrt(shape[1])
    weight = layers.noise("softmax/weight", shape, std=std)
    bias = layers.noise("softmax/bias", (1, vocabulary), std=_BIAS_STD)
    results = []
    for t, x in enumerate(outputs):
        name = f"softmax/step{t}"
        logits = ops.matmul(x, weight, False, True, name=f"{name}/matmul")
        logits = ops.add(logits, bias, name=f"{name}/bias_add")
        probabilities = ops.softmax(logits, 1, name=f"{name}/softmax")
        results.append(layers.result(probabilities, f"probabilities{t}"))
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
        cell, state = make_cell(f"lstm{layer}", hidden, hidden), zeros
        outputs = []
        for step, x in enumerate(inputs):
            state = advance(cell, step, [x], state)
            outputs.append(state.output)
        inputs = outputs
    return ov.Model(predict(inputs, vocabulary), [ids], "rnnlm")
