import dataclasses
import re

import numpy as np
import pytest

from placement.graphs import opgraph
from placement.graphs.opgraph import InvalidGraphError


def _make(**changes):
    fields = {
        "name": "g",
        "op_names": ["a", "b", "c"],
        "op_types": ["Parameter", "Relu", "Result"],
        "senders": [0, 1],
        "receivers": [1, 2],
        "edge_bytes": [4, 8],
    }
    return opgraph.make_graph(**(fields | changes))


def test_defaults_and_dtypes():
    graph = _make(senders=[0, 0], receivers=[1, 2], edge_bytes=[4.0, 4.0])
    assert (graph.num_ops, graph.num_edges) == (3, 2)
    assert graph.tensors.tolist() == [0, 0]
    assert graph.colocation.tolist() == [0, 1, 2]
    assert graph.flops.tolist() == graph.weight_bytes.tolist() == [0, 0, 0]
    assert graph.output_shapes == ((), (), ())
    dtypes = {field: getattr(graph, field).dtype for field in ("senders", "receivers", "tensors")}
    assert set(dtypes.values()) == {np.dtype(np.int32)}
    assert graph.edge_bytes.dtype == graph.weight_bytes.dtype == np.int64
    assert graph.colocation.dtype == np.int32
    assert graph.flops.dtype == np.float64


def test_arrays_are_read_only():
    senders = np.array([0, 1], np.int32)
    graph = _make(senders=senders)
    senders[0] = 2
    assert graph.senders.tolist() == graph.tensors.tolist() == [0, 1]
    for field in dataclasses.fields(graph):
        value = getattr(graph, field.name)
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable, field.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op_names": []}, "'g' has no operations"),
        ({"op_types": ["Relu"]}, "op_types has 1 entries, but op_names has 3"),
        ({"senders": [[0, 1], [0, 1]]}, r"senders has shape \(2, 2\); pass a flat array"),
        ({"op_names": ["a", "b", "a"]}, "several operations are named 'a'; .* rename"),
        ({"receivers": [1, 3]}, r"receivers\[1\] is 3, .* from 0 to 2"),
        ({"receivers": [0, 2]}, "'a' feeds itself; .* drop the self loop"),
        ({"edge_bytes": [4, -8]}, r"edge_bytes\[1\] is -8; .* not negative"),
        ({"flops": [0.0, float("nan"), 0.0]}, r"flops\[1\] is nan; .* finite"),
        ({"output_shapes": [(), (-1, 3), ()]}, r"operation 'b' has output shape \(-1, 3\)"),
        ({"tensors": [5, 5]}, r"edges 0 and 1 carry tensor 5 with different senders \(0 and 1\)"),
        (
            {"senders": [0, 0], "tensors": [5, 5]},
            r"edges 0 and 1 carry tensor 5 with different sizes \(4 and 8\)",
        ),
        ({"senders": np.array([0, 2**32 + 1])}, "senders holds 4294967297; .* fit int32"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(InvalidGraphError, match=message) as error:
        _make(**changes)
    assert "\n" not in str(error.value)


def test_cycles_are_named():
    with pytest.raises(InvalidGraphError, match=r"cycle through 'b', 'c'; .* acyclic") as error:
        opgraph.make_graph(
            name="g",
            op_names=["a", "b", "c", "d"],
            op_types=["Relu"] * 4,
            senders=[0, 1, 2, 2],
            receivers=[1, 2, 1, 3],
            edge_bytes=[1, 1, 1, 1],
            tensors=[0, 1, 2, 2],
        )
    assert not re.search("'[ad]'", str(error.value))
