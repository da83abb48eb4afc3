"""Roles of operations: operations that repeat, such as a layer in every time step, share one.

Roles are found by names or by neighbours:

    names        operations whose names differ in one number alone share a role, such as
                 'lstm0/step*/matmul'
    neighbours   colours of Weisfeiler and Lehman. The first colour is the type and output shape.
                 Each round adds the set of colours of the operations read, and that of the readers.
                 So k rounds tell apart operations that differ within k edges. They distinguish
                 neither the steps of an unrolled network nor its layers, except near their ends.

Only names tell a layer from the next one: both repeat, and colours do not say which is which.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from placement.types import OpGraph

ROUNDS = 2


def list_patterns(name: str) -> Iterator[str]:
    """Yields the patterns of a name: with the numbers of one part replaced, and its folders."""
    parts = name.split("/")
    for i, part in enumerate(parts):
        if (pattern := re.sub(r"\d+", "*", part)) != part:
            yield "/".join([*parts[:i], pattern, *parts[i + 1 :]])
        if i:
            yield "/".join([*parts[:i], ""])


def find_roles_by_name(graph: OpGraph) -> np.ndarray:
    """Numbers the roles found by names, int32 [N], by their first operation.

    An operation's role is the most frequent pattern of its name, of equals the one of the last
    number. A pattern of all operations does not count.
    """
    patterns = [
        [text for text in list_patterns(name) if text[-1] != "/"] for name in graph.op_names
    ]
    count = Counter(text for texts in patterns for text in texts)
    roles = []
    for texts, name in zip(patterns, graph.op_names, strict=True):
        candidates = [text for text in texts[::-1] if count[text] < graph.num_ops]
        roles.append(max(candidates, key=lambda text: count[text], default=name))
    return _number(roles)


def find_roles_by_neighbours(graph: OpGraph, rounds: int = ROUNDS) -> np.ndarray:
    """Numbers the colours of Weisfeiler and Lehman, int32 [N], by their first operation."""
    colours = _number(list(zip(graph.op_types, graph.output_shapes, strict=True)))
    for _ in range(rounds):
        keys: list[tuple[int, set[int], set[int]]] = [(c, set(), set()) for c in colours.tolist()]
        for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
            keys[receiver][1].add(keys[sender][0])
            keys[sender][2].add(keys[receiver][0])
        colours = _number([(c, frozenset(read), frozenset(readers)) for c, read, readers in keys])
    return colours


def _number(keys: Sequence[Hashable]) -> np.ndarray:
    """Numbers keys by their first occurrence, int32 [N]; equal keys have equal numbers."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int32)
