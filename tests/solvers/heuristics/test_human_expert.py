"""The expert's placement: layer by layer on the zoo's recurrent networks, one device elsewhere."""

import re
from typing import Any

import numpy as np

from placement import zoo
from placement.runtime.models import extract, frontend
from placement.solvers.heuristics import human_expert
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph
from tests import helpers


def _graph(text: str) -> OpGraph:
    text = f"{text},steps=3,batch=2,hidden=8,vocabulary=9"
    model = frontend.prepare(zoo.build(text, weights=False))
    return extract.op_graph(model, name=text, constants=True).graph


def _named(names: list[str], edges: list[tuple[int, int]], **fields: Any) -> OpGraph:
    return helpers.build("named", len(names), edges, op_names=names, **fields)


def _place(graph: OpGraph, num_accelerators: int, num_hosts: int = 1) -> np.ndarray:
    """Returns the devices of operations: accelerators, which come after the hosts."""
    accelerator = np.arange(-num_hosts, num_accelerators)
    costs = helpers.unit_costs(
        graph, len(accelerator), accelerator=np.maximum(accelerator, -1).astype(np.int32)
    )
    problem = helpers.as_problem(graph, costs, "serial")
    solution = human_expert.human_expert(problem, 0, SearchLimits(60.0, 1))
    return problem.expand(solution.placement)


def _devices(graph: OpGraph, placement: np.ndarray, pattern: str) -> set[int]:
    """Where the operations are whose name begins with a pattern."""
    chosen = [bool(re.match(pattern, name)) for name in graph.op_names]
    assert any(chosen)
    return set(placement[chosen].tolist())


def test_nmt_layer_by_layer():
    graph = _graph("nmt:layers=4")
    placement = _place(graph, 4)
    for layer in range(4):
        assert _devices(graph, placement, rf"(en|de)coder/lstm{layer}/") == {layer + 1}
    first, last = r"source|target|(en|de)coder/embedding/", r"attention/|softmax/|probabilities"
    assert _devices(graph, placement, first) == {1}
    assert _devices(graph, placement, last) == {4}
    # What remains is the state of zeros, which layer 0 reads first.
    assert 0 not in placement


def test_other_networks_use_one_accelerator():
    alike = ["encoder/0/attention/softmax", "embedding/word", "lstm", "mylstm0/x", "x/lstm1b"]
    for graph in (helpers.diamond(), _named(alike, [])):
        assert _place(graph, 2).tolist() == [1] * graph.num_ops


def test_other_operations_follow_readers():
    #  c -> d -> lstm1, d -> lstm0; e reads lstm1, f reads e; g stands alone; h -> i only
    names = ["lstm0", "lstm1", "c", "d", "e", "f", "g", "h", "i"]
    edges = [(0, 1), (2, 3), (3, 1), (3, 0), (1, 4), (4, 5), (7, 8)]
    placement = _place(_named(names, edges), 2)
    assert dict(zip(names, placement.tolist(), strict=True)) == {
        **dict.fromkeys(("lstm0", "c", "d", "g", "h", "i"), 1),
        **dict.fromkeys(("lstm1", "e", "f"), 2),
    }


def test_layers_are_counted_in_order():
    graph = _named(["a/lstm10/x", "a/lstm3/x", "lstm7"], [])
    assert _place(graph, 3, 0).tolist() == [2, 0, 1]
    assert _place(graph, 0, 2).tolist() == [0, 0, 0]


def test_colocated_operations_stay_together():
    names = ["lstm1/x", "lstm0/x", "lstm0/y", "lstm1/y"]
    graph = _named(names, [(1, 0), (2, 3)], colocation=[7, 7, 1, 2])
    assert _place(graph, 2, 0).tolist() == [1, 1, 0, 1]
