"""The placement an expert makes by hand, as Mirhoseini et al. 2018, section 3, describe it.

A network without recurrent layers goes to one accelerator as a whole. In a recurrent one every LSTM
layer gets an accelerator of its own, in order and round robin where there are fewer; the embedding
goes with the first layer, attention and softmax with the last. An encoder's layer and the decoder's
of the same number share one (Sutskever et al. 2014).

The layer is read off the operation's name, a path such as those of `placement.zoo.recurrent`:

    .../lstm2/...                    layer 2
    .../embedding/...                the first layer
    .../attention/... .../softmax/.. the last layer

Where no name has a part `lstm` and a number, the network counts as not recurrent.
"""

import re
from collections.abc import Sequence

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.instance import Instance

_LSTM = re.compile(r"(?:^|/)lstm(\d+)(?=/|$)")
_FIRST = re.compile(r"(?:^|/)embedding(?=/|$)")
_LAST = re.compile(r"(?:^|/)(?:attention|softmax)(?=/|$)")
_NONE = -1


def place(problem: Instance, accelerators: Sequence[int], host: int | None) -> np.ndarray:
    """Places as an expert does; see the module docstring.

    What a recurrent network's names assign to no layer (inputs, outputs, shared constants) goes
    with the first operation that reads it, else with what it reads. Co-located operations go with
    the first of them.

    Args:
      problem: N operations, not coarsened: a coarse operation has the name of one member only.
      accelerators: devices, in the order in which they are taken.
      host: the device that takes everything where there is no accelerator, else unused.

    Returns:
      int32 [N].

    Raises:
      UserError: there is neither an accelerator nor a host.
    """
    graph = problem.graph
    devices = [*accelerators] or ([] if host is None else [host])
    if not devices:
        raise UserError(
            f"graph {graph.name!r} has no device to go to: no accelerator and no host; give one"
        )
    layers = _spread(problem, _named_layers(graph.op_names))
    layers = layers[problem.leaders]
    return np.array(devices, np.int32)[layers % len(devices)]


def _named_layers(names: Sequence[str]) -> np.ndarray:
    """Returns int [N]: layers by name, from 0 without gaps; all 0 if not recurrent."""
    matches = [_LSTM.search(name) for name in names]
    numbers = sorted({int(match[1]) for match in matches if match})
    if not numbers:
        return np.zeros(len(names), int)
    layers = np.full(len(names), _NONE)
    for op, (name, match) in enumerate(zip(names, matches, strict=True)):
        if match:
            layers[op] = numbers.index(int(match[1]))
        elif _FIRST.search(name):
            layers[op] = 0
        elif _LAST.search(name):
            layers[op] = len(numbers) - 1
    return layers


def _spread(problem: Instance, layers: np.ndarray) -> np.ndarray:
    """Returns int [N]: what has no layer takes its first reader's, else its first producer's."""
    graph, layers, order = problem.graph, layers.copy(), problem.topological_order
    rank = np.argsort(order)
    sweeps = (
        (graph.senders, graph.receivers, order[::-1]),
        (graph.receivers, graph.senders, order),
    )
    for own, others, sweep in sweeps:
        starts, targets = dag.successors(graph.num_ops, own, others)
        for op in sweep[layers[sweep] == _NONE]:
            near = targets[starts[op] : starts[op + 1]]
            near = near[layers[near] != _NONE]
            if len(near):
                layers[op] = layers[near[np.argmin(rank[near])]]
    return np.maximum(layers, 0)  # what has no path to or from a layer
