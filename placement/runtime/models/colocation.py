"""Operations that HETERO runs right only where it runs them in one submodel.

- The operations of a variable: its ReadValue, its Assign, and all between. Apart, some placements
  fail to compile, some compute with a state that is never written, and some crash.
- The readers and the producer of a tensor that has a dimension of unknown but positive size, such
  as a cache with one entry more: HETERO makes the tensors that cross with size 0 there, which
  the plug-in that is handed one refuses.

Each set is closed: what lies on a path between two of its operations is in it, or else the set
could not run at once. This module loads no JAX, as the process that measures does without.
"""

from collections.abc import Iterable

import openvino as ov

_STATE_TYPES = ("ReadValue", "Assign")


def is_stateful(model: ov.Model) -> bool:
    """Whether outputs depend on earlier inferences."""
    return any(op.get_type_name() in _STATE_TYPES for op in model.get_ops())


def groups(model: ov.Model) -> list[frozenset[int]]:
    """Disjoint sets of operations, as indices into `model.get_ordered_ops()`."""
    nodes = model.get_ordered_ops()
    number = {node.get_instance_id(): i for i, node in enumerate(nodes)}
    sources = [
        [number[value.get_node().get_instance_id()] for value in node.input_values()]
        for node in nodes
    ]
    readers: list[list[int]] = [[] for _ in nodes]
    for i, read in enumerate(sources):
        for source in read:
            readers[source].append(i)
    found = _merged(_variables(nodes) + _unsized(nodes, sources))
    while True:
        closed = _merged(
            group | (_reached(group, sources) & _reached(group, readers)) for group in found
        )
        if closed == found:
            return found
        found = closed


def _variables(nodes: list[ov.Node]) -> list[frozenset[int]]:
    operations: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        if node.get_type_name() in _STATE_TYPES:
            operations.setdefault(node.get_attributes()["variable_id"], []).append(i)
    return [frozenset(those) for those in operations.values()]


def _unsized(nodes: list[ov.Node], sources: list[list[int]]) -> list[frozenset[int]]:
    return [
        frozenset((i, source))
        for i, node in enumerate(nodes)
        for source, port in zip(sources[i], node.inputs(), strict=True)
        if _is_unsized(port.get_partial_shape()) and node.get_type_name() != "Result"
    ]


def _is_unsized(shape: ov.PartialShape) -> bool:
    if shape.is_static or shape.rank.is_dynamic:
        return False
    return any(d.is_dynamic and d.get_min_length() > 0 for d in shape)


def _merged(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Disjoint unions of those sets that overlap, by their smallest member."""
    union: dict[int, set[int]] = {}  # of each member
    for each in sets:
        known = {id(union[op]): union[op] for op in each if op in union}
        largest = max(known.values(), key=len, default=set())
        for part in (each, *known.values()):
            if part is not largest:  # each time that a member moves, its union doubles at least
                largest.update(part)
                union.update(dict.fromkeys(part, largest))
    distinct = {id(those): those for those in union.values()}
    return sorted(map(frozenset, distinct.values()), key=min)


def _reached(start: Iterable[int], neighbours: list[list[int]]) -> frozenset[int]:
    """Returns what can be reached from `start`, itself included."""
    seen, waiting = set(start), list(start)
    while waiting:
        for i in neighbours[waiting.pop()]:
            if i not in seen:
                seen.add(i)
                waiting.append(i)
    return frozenset(seen)
