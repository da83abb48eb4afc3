"""The placement that an expert makes by hand, as described by Mirhoseini et al. 2018, section 3.

A network without recurrent layers goes to one accelerator as a whole. In a recurrent network, every
LSTM layer gets a separate accelerator, in order, and round robin if there are fewer. The
embedding goes with the first layer, attention and softmax with the last. Layers of the encoder and
of the decoder with the same number share an accelerator (Sutskever et al. 2014).

The layer is read off the operation's name, a path like those of `placement.zoo.recurrent`:

    .../lstm2/...                    layer 2
    .../embedding/...                the first layer
    .../attention/... .../softmax/.. the last layer

If no name has a part `lstm` with a number, the network counts as not recurrent.
"""

import re

import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_LSTM = re.compile(r"(?:^|/)lstm(\d+)(?=/|$)")
_FIRST = re.compile(r"(?:^|/)embedding(?=/|$)")
_LAST = re.compile(r"(?:^|/)(?:attention|softmax)(?=/|$)")
_NO_LAYER = -1


def human_expert(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """The choice of people, by rules of thumb, for all operations without coarsening.

    In a recurrent network, operations whose names tell no layer (inputs, outputs, shared constants)
    go with the first operation that reads them, else with one that they read. Co-located operations
    go with the first of them. A coarse operation has the name of one member only.
    """
    graph, order = problem.graph, problem.topological_order
    matches = [_LSTM.search(name) for name in graph.op_names]
    numbers = sorted({int(match[1]) for match in matches if match})
    layers = np.full(graph.num_ops, _NO_LAYER if numbers else 0)
    for op, (name, match) in enumerate(zip(graph.op_names, matches, strict=True)):
        if match:
            layers[op] = numbers.index(int(match[1]))
        elif _FIRST.search(name):
            layers[op] = 0
        elif _LAST.search(name):
            layers[op] = max(0, len(numbers) - 1)

    position = np.argsort(order)
    # Unknown layers: the first reader's, found from the end; then the first producer's.
    passes = (
        (graph.senders, graph.receivers, order[::-1]),
        (graph.receivers, graph.senders, order),
    )
    for ops, neighbours, pass_order in passes:
        starts, targets = dag.successors(graph.num_ops, ops, neighbours)
        for op in pass_order[layers[pass_order] == _NO_LAYER]:
            candidates = targets[starts[op] : starts[op + 1]]
            candidates = candidates[layers[candidates] != _NO_LAYER]
            if len(candidates):
                layers[op] = layers[candidates[np.argmin(position[candidates])]]
    layers = np.maximum(layers, 0)  # operations without a path to or from a layer
    # Without an accelerator the host takes everything.
    is_host = np.asarray(problem.costs.accelerator) < 0
    devices = np.flatnonzero(is_host)[:1] if is_host.all() else np.flatnonzero(~is_host)
    layers = layers[problem.decisions.first_ops]
    placement = devices.astype(np.int32)[layers % len(devices)]
    return Solution(placement, evaluations=1)
