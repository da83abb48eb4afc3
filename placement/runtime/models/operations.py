"""Listings of a model's operations: all of them, those inside bodies, the constant ones."""

from collections.abc import Iterator

import openvino as ov

from placement.graphs.op_types import NEVER_CONSTANT


def op_bodies(op: ov.Node) -> list[ov.Model]:
    """Returns the models inside an If (then, else), Loop or TensorIterator; [] for other types."""
    op_type = op.get_type_name()
    if op_type == "If":
        return [op.get_function(0), op.get_function(1)]
    if op_type in ("Loop", "TensorIterator"):
        return [op.get_function()]
    return []


def with_bodies(op: ov.Node) -> Iterator[ov.Node]:
    """Yields an operation, then those inside its bodies."""
    yield op
    for body in op_bodies(op):
        yield from all_ops(body)


def all_ops(model: ov.Model) -> Iterator[ov.Node]:
    """Yields the operations of a model in order, each followed by those inside its bodies."""
    for op in model.get_ordered_ops():
        yield from with_bodies(op)


def ops_by_name(model: ov.Model) -> dict[str, ov.Node]:
    """Returns the operations of a model by friendly name, in topological order."""
    return {op.get_friendly_name(): op for op in model.get_ordered_ops()}


def source_name(port: ov.Input) -> str:
    """Returns the friendly name of the operation that computes an input of another."""
    return port.get_source_output().get_node().get_friendly_name()


def constant_names(model: ov.Model) -> frozenset[str]:
    """Returns the names of the operations whose outputs are known before any request."""
    names: set[str] = set()
    for op in model.get_ordered_ops():
        # An operation without inputs is constant too, unless its type never is (Parameter, ...).
        is_constant = all(source_name(port) in names for port in op.inputs())
        if is_constant and op.get_type_name() not in NEVER_CONSTANT:
            names.add(op.get_friendly_name())
    return frozenset(names)


def find_constants_read(model: ov.Model) -> dict[str, dict[str, int]]:
    """Returns the Constants that each operation reads, and their bytes, by operation.

    An operation reads them directly or through operations on constants; a Constant reads itself.
    """
    constants = constant_names(model)
    read: dict[str, dict[str, int]] = {}
    for name, op in ops_by_name(model).items():
        read[name] = {name: op.get_byte_size()} if op.get_type_name() == "Constant" else {}
        for source in constants.intersection(map(source_name, op.inputs())):
            read[name] |= read[source]
    return read


def computed_names(model: ov.Model) -> list[str]:
    """Returns the names of the operations that devices run in every request, in order."""
    constants = constant_names(model)
    return [
        name
        for name, op in ops_by_name(model).items()
        if name not in constants and op.get_type_name() not in ("Parameter", "Result")
    ]
