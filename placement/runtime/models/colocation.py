"""Sets of operations that HETERO runs correctly only inside one submodel.

- The operations of a variable: its ReadValue, its Assign, and all operations between them. If they
  are separated, some placements fail to compile, some never write the state, and some crash.
- The producer and the readers of a tensor with a dimension of unknown but positive size, such as a
  cache that grows by one entry. HETERO gives such a tensor size 0 in that dimension when it crosses
  between submodels, and the plug-in that receives it refuses it.

Each set is convex: an operation on a path between two of its members is a member too, because
otherwise the set could not run as one submodel. This module must not load JAX, which the measuring
process does without.
"""

from collections.abc import Iterable
from typing import TypeVar

import openvino as ov

T = TypeVar("T", int, str)

_STATE_TYPES = ("ReadValue", "Assign")


def is_stateful(model: ov.Model) -> bool:
    """Returns whether the outputs of a model depend on earlier inferences."""
    return any(op.get_type_name() in _STATE_TYPES for op in model.get_ops())


def colocated_groups(model: ov.Model) -> list[frozenset[int]]:
    """Returns disjoint sets of operations, as indices into `model.get_ordered_ops()`."""
    ops = model.get_ordered_ops()
    index = {op.get_instance_id(): i for i, op in enumerate(ops)}
    sources = [
        [index[value.get_node().get_instance_id()] for value in op.input_values()] for op in ops
    ]
    readers: list[list[int]] = [[] for _ in ops]
    variable_ops: dict[str, list[int]] = {}
    unsized_pairs = []
    for i, op in enumerate(ops):
        for source, port in zip(sources[i], op.inputs(), strict=True):
            readers[source].append(i)
            shape = port.get_partial_shape()
            # A static shape needs no look at its sizes, which would take long.
            sizes = list(shape) if shape.is_dynamic and shape.rank.is_static else []
            is_unsized = any(dim.is_dynamic and dim.get_min_length() > 0 for dim in sizes)
            if is_unsized and op.get_type_name() != "Result":
                unsized_pairs.append(frozenset((i, source)))
        if op.get_type_name() in _STATE_TYPES:
            variable_ops.setdefault(op.get_attributes()["variable_id"], []).append(i)
    merged = merge_overlapping([*map(frozenset, variable_ops.values()), *unsized_pairs])
    while True:
        # An operation lies between two members if it is both an ancestor and a descendant. Adding
        # these can make sets overlap, and a merged set can have new operations between its members.
        convex = merge_overlapping(
            group | (_reachable(group, sources) & _reachable(group, readers)) for group in merged
        )
        if convex == merged:
            return merged
        merged = convex


def merge_overlapping(sets: Iterable[frozenset[T]]) -> list[frozenset[T]]:
    """Returns the disjoint unions of overlapping sets, ordered by their smallest member."""
    parents: dict[T, T] = {}  # trees of members; each root is the smallest of its union

    def find_root(member: T) -> T:
        while (parent := parents.setdefault(member, member)) != member:
            parents[member] = parents[parent]  # halves the path
            member = parent
        return member

    for overlapping in sets:
        roots = set(map(find_root, overlapping))
        parents.update(dict.fromkeys(roots, min(roots)))
    unions: dict[T, set[T]] = {}
    for member in sorted(parents):
        unions.setdefault(find_root(member), set()).add(member)
    return list(map(frozenset, unions.values()))


def _reachable(start: Iterable[int], neighbours: list[list[int]]) -> frozenset[int]:
    """Returns the nodes that can be reached from `start`, including `start`."""
    reached, pending = set(start), list(start)
    while pending:
        for i in neighbours[pending.pop()]:
            if i not in reached:
                reached.add(i)
                pending.append(i)
    return frozenset(reached)
