"""Parts of recurrent networks, unrolled: every step of every layer is operations of its own.

Words come time-major, [steps, batch], and every step has its own operations for its word, its
cells and its probabilities; weights are one Constant and Convert that all steps read. The names
say what belongs together, and `placement.solvers.heuristics.human_expert` goes by them:

    [side/]embedding/...          the table, and the words of every step
    [side/]lstm{layer}/...        weight and bias of a layer's cell
    [side/]lstm{layer}/step{t}/.. the cell's operations at step t
    attention/...  softmax/...    on top of the last layer

where the side is 'encoder' or 'decoder' if the network has two; layers and steps count from 0.
"""

import math
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers

# A cell's outputs are far below one; the gain keeps what a layer hands on from fading with depth.
# Random recurrent weights of such a gain make the network chaotic: rounding (bf16, f16) would grow
# from step to step.
_INPUT_GAIN = 1.5
_RECURRENT_GAIN = 0.5
_LOGIT_GAIN = 2.0
_BIAS_STD = 0.05
_FORGET_BIAS = 1.0

_GATES = ("input_gate", "forget_gate", "candidate", "output_gate")


class Cell(NamedTuple):
    """What all steps of an LSTM layer share."""

    name: str
    weight: ov.Node  # [4 hidden, inputs + hidden]
    bias: ov.Node  # [1, 4 hidden]


class State(NamedTuple):
    """What an LSTM layer hands to its next step."""

    output: ov.Node  # [batch, hidden]
    memory: ov.Node  # [batch, hidden]


def words(name: str, steps: int, batch: int, *, prefix: str = "") -> tuple[ov.Node, list[ov.Node]]:
    """Builds an input int64 [steps, batch], and the words of every step: int32 [batch]."""
    ids = layers.parameter(name, (steps, batch), ov.Type.i64)
    name = f"{prefix}embedding"
    index = ops.convert(ids, "i32", name=f"{name}/ids")
    parts = ops.split(index, layers.integers(f"{name}/split/axis", 0), steps, name=f"{name}/split")
    return ids, [
        layers.squeeze(part, f"{name}/step{t}/squeeze", 0) for t, part in enumerate(parts.outputs())
    ]


def embeddings(
    each: list[ov.Node], vocabulary: int, hidden: int, *, prefix: str = ""
) -> list[ov.Node]:
    """Looks up the words of every step in a table: int32 [batch] -> [batch, hidden] each."""
    name = f"{prefix}embedding"
    table = layers.noise(f"{name}/weight", (vocabulary, hidden), std=1.0)
    return [
        ops.gather(
            table, ids, layers.integers(f"{name}/step{t}/axis", 0), name=f"{name}/step{t}/gather"
        )
        for t, ids in enumerate(each)
    ]


def zero_state(batch: int, hidden: int) -> State:
    """Makes the state before the first step: a Constant that every layer reads, twice."""
    zeros = layers.compressed("zero_state", np.zeros((batch, hidden), np.float32))
    return State(zeros, zeros)


def cell(name: str, inputs: int, hidden: int) -> Cell:
    """Makes the weights of an LSTM layer that reads `inputs` numbers beside its own output."""
    shape = (4 * hidden, inputs + hidden)
    gains = np.repeat([_INPUT_GAIN, _RECURRENT_GAIN], [inputs, hidden])
    weight = layers.noise(f"{name}/weight", shape, std=gains / math.sqrt(shape[1]))
    mean = np.repeat([_FORGET_BIAS if gate == "forget_gate" else 0.0 for gate in _GATES], hidden)
    return Cell(
        name, weight, layers.noise(f"{name}/bias", (1, 4 * hidden), std=_BIAS_STD, mean=mean)
    )


def advance(cell: Cell, step: int, inputs: list[ov.Node], state: State) -> State:
    """Builds one step of an LSTM layer: 14 operations with 21 inputs.

    Hochreiter and Schmidhuber 1997 with forget gates, without peepholes, as TensorFlow's
    BasicLSTMCell spells it out; its forget bias is part of the bias here.

    Args:
      cell: the layer.
      step: its number.
      inputs: what the layer reads, [batch, ...] each.
      state: before the step.
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
    kept = ops.multiply(forget, state.memory, name=f"{name}/keep")
    written = ops.multiply(write, candidate, name=f"{name}/write")
    memory = ops.add(kept, written, name=f"{name}/memory")
    output = ops.multiply(read, ops.tanh(memory, name=f"{name}/tanh"), name=f"{name}/output")
    return State(output, memory)


def predict(each: list[ov.Node], vocabulary: int) -> list[ov.Node]:
    """Builds a Result a step, the next word's probabilities: [batch, C] -> [batch, vocabulary].

    They are called 'probabilities0', 'probabilities1', ...
    """
    shape = (vocabulary, each[0].shape[1])
    std = _LOGIT_GAIN / math.sqrt(shape[1])
    weight = layers.noise("softmax/weight", shape, std=std)
    bias = layers.noise("softmax/bias", (1, vocabulary), std=_BIAS_STD)
    results = []
    for t, x in enumerate(each):
        name = f"softmax/step{t}"
        logits = ops.matmul(x, weight, False, True, name=f"{name}/matmul")
        logits = ops.add(logits, bias, name=f"{name}/bias_add")
        probabilities = ops.softmax(logits, 1, name=f"{name}/softmax")
        results.append(layers.result(probabilities, f"probabilities{t}"))
    return results
