"""The expert's placement: layer by layer on the zoo's recurrent networks, one device elsewhere."""

import functools
import re
from collections.abc import Sequence

import numpy as np
import pytest

from placement import zoo
from placement.graphs import opgraph
from placement.runtime.models import extract, frontend
from placement.solvers.heuristics import human_expert
from placement.types import OpGraph
from placement.zoo import synthetic
from tests import helpers

TINY = "steps=3,batch=2,hidden=8,vocabulary=9"


@functools.cache
def _graph(text: str, constants: bool) -> OpGraph:
    model = frontend.prepare(zoo.build(text, weights=False))
    return extract.op_graph(model, name=text, constants=constants).graph


def _named(names: list[str], edges: list[tuple[int, int]], **fields: object) -> OpGraph:
    senders, receivers = np.array(edges, np.int32).reshape(-1, 2).T
    return opgraph.make_graph(
        name="named",
        op_names=names,
        op_types=["MatMul"] * len(names),
        senders=senders,
        receivers=receivers,
        edge_bytes=np.ones(len(edges)),
        **fields,
    )


def _place(graph: OpGraph, accelerators: Sequence[int], host: int | None) -> np.ndarray:
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "serial")
    return human_expert.place(problem, accelerators, host)


def _devices(graph: OpGraph, placement: np.ndarray, pattern: str) -> set[int]:
    """Where the operations are whose name begins with a pattern."""
    chosen = [bool(re.match(pattern, name)) for name in graph.op_names]
    assert any(chosen)
    return set(placement[chosen].tolist())


def test_rnnlm_layer_by_layer():
    graph = _graph(f"rnnlm:layers=3,{TINY}", True)
    placement = _place(graph, (4, 2, 7), 0)
    assert placement.dtype == np.int32
    assert placement.shape == (graph.num_ops,)
    parts = {r"words|embedding/|lstm0/": 4, r"lstm1/": 2, r"lstm2/|softmax/|probabilities": 7}
    for pattern, device in parts.items():
        assert _devices(graph, placement, pattern) == {device}
    assert _devices(graph, placement, "zero_state") == {4}
    assert set(placement.tolist()) == {2, 4, 7}


@pytest.mark.parametrize("constants", [True, False])
def test_nmt_layer_by_layer(constants):
    graph = _graph(f"nmt:layers=4,{TINY}", constants)
    placement = _place(graph, (1, 2, 3, 4), 0)
    for layer in range(4):
        assert _devices(graph, placement, rf"(en|de)coder/lstm{layer}/") == {layer + 1}
    first, last = r"source|target|(en|de)coder/embedding/", r"attention/|softmax/|probabilities"
    assert _devices(graph, placement, first) == {1}
    assert _devices(graph, placement, last) == {4}
    # What remains is the state of zeros, which layer 0 reads first.
    assert 0 not in placement


def test_host_without_accelerators():
    graph = _graph(f"rnnlm:layers=2,{TINY}", True)
    assert set(_place(graph, (), 3).tolist()) == {3}


@pytest.mark.parametrize(
    "graph",
    [
        helpers.diamond(),
        synthetic.build("synthetic:ops=50"),
        _named(
            ["encoder/0/attention/softmax", "embedding/word", "lstm", "mylstm0/x", "x/lstm1b"], []
        ),
    ],
    ids=["diamond", "synthetic", "names that only look alike"],
)
def test_other_networks_use_one_accelerator(graph):
    placement = _place(graph, (2, 1), 0)
    assert placement.tolist() == [2] * graph.num_ops


def test_layers_are_counted_in_order():
    graph = _named(["a/lstm10/x", "a/lstm3/x", "lstm7"], [])
    assert _place(graph, (0, 1, 2), None).tolist() == [2, 0, 1]


def test_other_operations_follow_readers():
    #  c -> d -> lstm1, d -> lstm0; e reads lstm1, f reads e; g stands alone; h -> i only
    names = ["lstm0", "lstm1", "c", "d", "e", "f", "g", "h", "i"]
    edges = [(0, 1), (2, 3), (3, 1), (3, 0), (1, 4), (4, 5), (7, 8)]
    placement = _place(_named(names, edges), (4, 5), None)
    assert dict(zip(names, placement.tolist(), strict=True)) == {
        **dict.fromkeys(("lstm0", "c", "d", "g", "h", "i"), 4),
        **dict.fromkeys(("lstm1", "e", "f"), 5),
    }


def test_colocated_operations_stay_together():
    names = ["lstm1/x", "lstm0/x", "lstm0/y", "lstm1/y"]
    graph = _named(names, [(1, 0), (2, 3)], colocation=[7, 7, 1, 2])
    assert _place(graph, (0, 1), None).tolist() == [1, 1, 0, 1]
