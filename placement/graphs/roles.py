"""Which operations play the same role: what repeats in a graph, such as a layer in every time step.

Roles are told by names or by neighbours:

    by name        names that differ in one number alone, such as 'lstm0/step*/matmul'
    by neighbours  colours of Weisfeiler and Lehman: at first type and output shape, then, round by
                   round, the colour and those of the operations read and of the readers, each
                   counted once. k rounds tell apart what differs within k edges, and so neither the
                   steps of an unrolled network nor its layers but near their ends.

Colours tell no layer from the next one, which names do: both repeat, and only names say which
repetition is which.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from placement.types import OpGraph

ROUNDS = 2


def alike(name: str) -> Iterator[str]:
    """Yields what a name shares with others: itself without the numbers of a part, and folders."""
    parts = name.split("/")
    for i, part in enumerate(parts):
        if (other := re.sub(r"\d+", "*", part)) != part:
            yield "/".join([*parts[:i], other, *parts[i + 1 :]])
        if i:
            yield "/".join([*parts[:i], ""])


def by_name(graph: OpGraph) -> np.ndarray:
    """Numbers the roles that names tell, int32 [N], by their first operation.

    Of the sets that it may belong to an operation is in the largest, but for that of all, and of
    equals in that of its last number.
    """
    shared = [[text for text in alike(name) if text[-1] != "/"] for name in graph.op_names]
    size = Counter(text for texts in shared for text in texts)
    some = [[text for text in texts if size[text] < graph.num_ops] for texts in shared]
    return _numbered(
        [
            max(texts[::-1], key=lambda text: size[text], default=name)
            for texts, name in zip(some, graph.op_names, strict=True)
        ]
    )


def by_neighbours(graph: OpGraph, rounds: int = ROUNDS) -> np.ndarray:
    """Numbers the colours of Weisfeiler and Lehman, int32 [N], by their first operation."""
    colour = _numbered(list(zip(graph.op_types, graph.output_shapes, strict=True)))
    for _ in range(rounds):
        read = _colours(graph.senders, graph.receivers, colour)
        readers = _colours(graph.receivers, graph.senders, colour)
        colour = _numbered(list(zip(colour.tolist(), read, readers, strict=True)))
    return colour


def _colours(of: np.ndarray, to: np.ndarray, colour: np.ndarray) -> list[frozenset[int]]:
    """The colours that edges bring from one end, for every operation at their other."""
    found: list[set[int]] = [set() for _ in colour]
    for number, brought in zip(to.tolist(), colour[of].tolist(), strict=True):
        found[number].add(brought)
    return [frozenset(colours) for colours in found]


def _numbered(keys: Sequence[Hashable]) -> np.ndarray:
    """Numbers equal keys alike, int32 [N], in the order in which they come."""
    number = {key: nth for nth, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], np.int32)
