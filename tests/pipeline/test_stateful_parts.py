"""Parts with a variable that depend on themselves through another device."""

import numpy as np
import pytest

from placement.graphs import coarsen, opgraph
from placement.pipeline import loading
from placement.runtime.execution import hetero
from placement.runtime.models import extract, frontend
from placement.types import OpGraph
from tests import helpers
from tests.runtime import sample_models


def _graph(op_types: tuple[str, ...] = ("Relu", "Relu", "Assign", "Relu")) -> OpGraph:
    """x -> key -> write, x -> write, write -> end; `write` stands for a variable's operations."""
    return opgraph.make_graph(
        name="cache",
        op_names=["x", "key", "write", "end"],
        op_types=op_types,
        senders=[0, 1, 0, 2],
        receivers=[1, 2, 2, 3],
        edge_bytes=np.ones(4),
    )


def _remove_cycles(graph: OpGraph, compute_s: list[list[float]], placement: list[int]) -> list[int]:
    costs = helpers.unit_costs(graph, compute_s=np.array(compute_s, np.float32))
    net = loading.Network(None, graph, coarsen.Coarsening(graph, np.arange(graph.num_ops), ()), {})
    problem = loading.make_problem(net, costs, ("A", "B"), "serial")
    placements = np.array([placement], np.int32)
    return loading.remove_variable_cycles(net, problem, placements)[0].tolist()


def test_cycles_move_to_fastest_device():
    fast_b = [[2.0, 1.0]] * 4
    assert _remove_cycles(_graph(), fast_b, [0, 1, 0, 0]) == [1, 1, 1, 1]
    assert _remove_cycles(_graph(), [[1.0, 2.0]] * 4, [0, 1, 0, 0]) == [0, 0, 0, 0]
    unsupported = [[2.0, 1.0], [np.inf, 1.0], [1.0, np.inf], [2.0, 1.0]]  # no device has all
    assert _remove_cycles(_graph(), unsupported, [0, 1, 0, 0]) == [0, 1, 0, 0]


def test_acyclic_placements_stay():
    equal = [[1.0, 1.0]] * 4
    for placement in ([0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 1]):
        assert _remove_cycles(_graph(), equal, placement) == placement
    assert _remove_cycles(_graph(("Relu",) * 4), equal, [0, 1, 0, 0]) == [0, 1, 0, 0]


@pytest.mark.parametrize("sample", ["cache", "states"])
def test_hetero_accepts_acyclic_placements(sample):
    model = frontend.prepare(getattr(sample_models, sample)())
    graph = extract.op_graph(model, name=sample, constants=False).graph
    coarsening = coarsen.coarsen(graph)
    num_coarse = coarsening.graph.num_ops
    net = loading.Network(model, graph, coarsening, {})
    problem = loading.make_problem(net, helpers.unit_costs(graph), ("A", "B"), "serial")
    generator, num_changed = np.random.default_rng(0), 0
    for _ in range(60):
        placement = generator.integers(0, 2, num_coarse).astype(np.int32)
        (changed,) = loading.remove_variable_cycles(net, problem, placement[None])
        num_changed += not np.array_equal(changed, placement)
        affinity = net.affinity("AB", changed)
        labelled = hetero.label_devices(model, affinity, ("A", "B"))
        assert labelled.get_ordered_ops()
    assert num_changed > 0
