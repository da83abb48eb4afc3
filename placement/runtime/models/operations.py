"""The operations of a model: all of them, those inside bodies, those known before any request."""

from collections.abc import Iterator

import openvino as ov

from placement.graphs.op_types import NEVER_CONSTANT


def bodies(op: ov.Node) -> list[ov.Model]:
    """The models inside an If (then, else), Loop or TensorIterator; none for other operations."""
    kind = op.get_type_name()
    if kind == "If":
        return [op.get_function(0), op.get_function(1)]
    if kind in ("Loop", "TensorIterator"):
        return [op.get_function()]
    return []


def all_ops(model: ov.Model) -> Iterator[ov.Node]:
    """The operations of a model in order, each followed by those inside its bodies."""
    for op in model.get_ordered_ops():
        yield op
        for body in bodies(op):
            yield from all_ops(body)


def constant_names(model: ov.Model) -> frozenset[str]:
    """Names of the operations whose outputs are known before any request."""
    names: set[str] = set()
    for op in model.get_ordered_ops():
        inputs = (source.get_node().get_friendly_name() for source in op.input_values())
        if op.get_type_name() not in NEVER_CONSTANT and all(name in names for name in inputs):
            names.add(op.get_friendly_name())
    return frozenset(names)


def computed_names(model: ov.Model) -> list[str]:
    """Names of the operations that devices run at every request, in topological order."""
    constant = constant_names(model)
    return [
        op.get_friendly_name()
        for op in model.get_ordered_ops()
        if op.get_friendly_name() not in constant
        and op.get_type_name() not in ("Parameter", "Result")
    ]
