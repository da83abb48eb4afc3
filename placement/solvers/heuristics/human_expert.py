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
from collections.abc import Sequence

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_LSTM = re.compile(r"(?:^|/)lstm(\d+)(?=/|$)")
_FIRST = re.compile(r"(?:^|/)embedding(?=/|$)")
_LAST = re.compile(r"(?:^|/)(?:attention|softmax)(?=/|$)")
_NO_LAYER = -1


def place(problem: Instance, accelerators: Sequence[int], host: int | None) -> np.ndarray:
    """Places a network as an expert does; see the module docstring.

    In a recurrent network, operations whose names tell no layer (inputs, outputs, shared constants)
    go with the first operation that reads them, else with one that they read. Co-located operations
    go with the first of them.

    Args:
      problem: N operations, not coarsened: a coarse operation has the name of one member only.
      accelerators: devices, in the order in which they are used.
      host: the device for everything without accelerators, else unused.

    Returns:
      int32 [N].

    Raises:
      UserError: there is neither an accelerator nor a host.
    """
    graph, order = problem.graph, problem.topological_order
    devices = [*accelerators] or ([] if host is None else [host])
    if not devices:
        raise UserError(
            f"graph {graph.name!r} has no device to go to, neither an accelerator nor a host"
        )
    layers = _named_layers(graph.op_names)
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
    return np.array(devices, np.int32)[layers[problem.leaders] % len(devices)]


def human_expert(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """The choice of people, by rules of thumb, for all operations without coarsening."""
    del seed, limits
    is_host = np.asarray(problem.costs.accelerator) < 0
    host = int(np.argmax(is_host)) if is_host.any() else None
    accelerators = np.flatnonzero(~is_host).tolist()
    return Solution(place(problem, accelerators, host), evaluations=1)


def _named_layers(names: Sequence[str]) -> np.ndarray:
    """Returns layers by name, int [N], from 0 without gaps; all 0 if not recurrent."""
    matches = [_LSTM.search(name) for name in names]
    numbers = sorted({int(match[1]) for match in matches if match})
    if not numbers:
        return np.zeros(len(names), int)
    layers = np.full(len(names), _NO_LAYER)
    for op, (name, match) in enumerate(zip(names, matches, strict=True)):
        if match:
            layers[op] = numbers.index(int(match[1]))
        elif _FIRST.search(name):
            layers[op] = 0
        elif _LAST.search(name):
            layers[op] = len(numbers) - 1
    return layers
