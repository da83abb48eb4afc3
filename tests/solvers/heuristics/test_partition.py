"""Graph partitioners: known best cuts, shares, co-location, repair, and Scotch's text formats."""

import functools
import itertools
import shutil
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from placement.errors import UserError
from placement.problem import Problem
from placement.runtime import scotch as program
from placement.solvers import base
from placement.solvers.heuristics import partition
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph
from placement.zoo import synthetic
from tests import helpers
from tests.simulators import reference

INF = float("inf")
METHODS: dict[str, base.Find] = {
    "metis": partition.metis,
    "scotch": functools.partial(partition.scotch, gmap=program.run_gmap),
    "min_cut": partition.min_cut,
}
_NO_SCOTCH = not (shutil.which("scotch_gmap") or shutil.which("gmap"))
real_scotch = pytest.mark.skipif(_NO_SCOTCH, reason="Scotch is not installed")


def methods(*names: str) -> pytest.MarkDecorator:
    """Crosses a test with methods, by default all."""
    marked = {"scotch": real_scotch}
    return pytest.mark.parametrize(
        "method",
        [
            pytest.param(METHODS[name], id=name, marks=marked.get(name, ()))
            for name in names or METHODS
        ],
    )


def _place(method: base.Find, problem: Problem, seed: int = 0) -> np.ndarray:
    return method(problem, seed, SearchLimits(60.0, 1)).placement


def _graph(num_ops: int, edges: list[tuple[int, int]], **fields: Any) -> OpGraph:
    return helpers.build(
        "hand-made", num_ops, edges, **{"edge_bytes": [100] * len(edges), **fields}
    )


def _cliques(count: int, size: int) -> OpGraph:
    """Cliques in a row, the last operation of each joined with the first of the next."""
    edges = [
        (clique * size + one, clique * size + other)
        for clique in range(count)
        for one, other in itertools.combinations(range(size), 2)
    ]
    edges += [(clique * size - 1, clique * size) for clique in range(1, count)]
    return _graph(count * size, edges)


def _problem(
    graph: OpGraph, seconds: list[float], *, accelerator: list[int] | None = None
) -> Problem:
    """Every operation takes `seconds` on each device; by default all devices are accelerators."""
    changes = {"compute_s": np.tile(np.array(seconds, np.float32), (graph.num_ops, 1))}
    if accelerator is not None:
        changes["accelerator"] = np.array(accelerator, np.int32)
    costs = helpers.unit_costs(graph, len(seconds), **changes)
    return helpers.as_problem(graph, costs, "makespan")


def _with_compute(problem: Problem, op: int, row: list[float]) -> Problem:
    compute_s = problem.costs.compute_s.copy()
    compute_s[op] = row
    return problem._replace(costs=problem.costs._replace(compute_s=compute_s))


@methods()
def test_only_bridges_are_cut(method):
    placement = _place(method, _problem(_cliques(3, 8), [1.0] * 3))
    assert placement.dtype == np.int32
    cliques = placement.reshape(3, 8)
    np.testing.assert_array_equal(cliques, np.tile(cliques[:, :1], 8))
    assert sorted(cliques[:, 0]) == [0, 1, 2]


@methods()
def test_shares_follow_speed(method):
    problem = _problem(helpers.chain(200), [6.0, 2.0, 3.0])
    counts = np.bincount(_place(method, problem), minlength=3)
    np.testing.assert_allclose(counts, [33, 100, 67], atol=10)


@methods()
def test_limits_are_kept(method):
    """Co-located operations go to a device that supports all of them."""
    rng = np.random.default_rng(0)
    graph = helpers.random_dag(rng, 60, edge_probability=0.1, colocated=0.3)
    costs = helpers.random_costs(rng, graph, 3, unsupported=0.2)
    problem = helpers.as_problem(graph, costs, "serial")
    placement = _place(method, problem)
    runnable = problem.decisions.allowed
    chosen = runnable[np.arange(len(placement)), placement]
    np.testing.assert_array_equal(chosen, runnable.any(axis=1))


def _everything_on(part: int) -> Callable[[str], str]:
    """Stands for Scotch's program."""

    def gmap(text: str) -> str:
        num_vertices = int(text.split()[1])
        return f"{num_vertices}\n" + "".join(f"{i}\t{part}\n" for i in range(num_vertices))

    return gmap


def test_repair_moves_whole_decisions():
    graph = _graph(4, [(0, 1), (1, 2), (2, 3)], colocation=[0, 1, 0, 2])
    problem = _problem(graph, [1.0, 1.0, 1.0])
    # Device 1 runs operation 0 in no time, but not operation 2, which shares its device.
    problem = _with_compute(problem, 0, [INF, 0.0, 3.0])
    problem = _with_compute(problem, 2, [1.0, INF, 3.0])
    placement = _place(functools.partial(partition.scotch, gmap=_everything_on(1)), problem)
    assert placement.tolist() == [2, 1, 1]


def test_min_cut_avoids_the_host():
    problem = _problem(_cliques(2, 8), [0.5, 1.0, 1.0], accelerator=[-1, 0, 1])
    problem = _with_compute(problem, 3, [9.0, INF, INF])
    # Of these two at least one has to be moved, and would be fastest on the host.
    problem = _with_compute(problem, 9, [0.1, 1.0, INF])
    problem = _with_compute(problem, 10, [0.1, INF, 1.0])
    placement = _place(partition.min_cut, problem)
    assert np.flatnonzero(placement == 0).tolist() == [3]
    assert placement[[9, 10]].tolist() == [1, 2]


@methods()
def test_seed_decides(method):
    graph = synthetic.build("synthetic:ops=400")
    costs = helpers.random_costs(np.random.default_rng(0), graph, 3)
    problem = helpers.as_problem(graph, costs, "makespan")
    once, again = ([_place(method, problem, seed).tolist() for seed in range(3)] for _ in range(2))
    assert once == again
    assert len(set(map(tuple, once))) > 1


@methods()
def test_degenerate_graphs(method):
    graphs = (
        helpers.chain(1),
        _graph(6, []),
        _graph(3, [(0, 1), (1, 2)], colocation=[4, 4, 4]),
        _graph(4, [(0, 1), (2, 3)], colocation=[7, 7, 10**9, 2]),
        _graph(4, [(0, 1), (1, 2), (2, 3)], edge_bytes=[0, 0, 0]),
    )
    for graph, seconds in itertools.product(graphs, ([0.0] * 5, [1.0], [1.0] * 5, [1.0, INF])):
        problem = _problem(graph, seconds)
        placement = _place(method, problem)
        assert placement.shape == (problem.num_decisions,)
        _, _, (feasible,) = reference.outcomes(problem, placement[None])
        assert feasible


@methods("metis", "min_cut")
def test_missing_package_names_its_extra(method, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(UserError, match=r"^pymetis .*the extra 'solvers'$"):
        _place(method, _problem(helpers.diamond(), [1.0, 1.0]))


def test_scotch_input_and_answer():
    # Decisions {0}, {1, 4}, {2}, {3}. Operation 0's tensor of 10 bytes is read twice by decision 1
    # and once by 2, its other one of 30 bytes by 1 alone; 1 -> 4 is within a decision.
    graph = _graph(
        5,
        [(0, 1), (0, 4), (0, 2), (0, 4), (1, 4), (2, 3)],
        edge_bytes=[10, 10, 10, 30, 70, 50],
        tensors=[0, 0, 0, 9, 1, 2],
        colocation=[5, 8, 6, 7, 8],
    )
    # Means: 2, 1 + 3, 1, 1, of which device 1 supports none in operation 3.
    compute_s = np.float32([[1, 3], [0.5, 1.5], [1, 1], [1, np.inf], [1.5, 4.5]])
    problem = helpers.as_problem(graph, helpers.unit_costs(graph, compute_s=compute_s), "serial")
    given: list[list[int]] = []

    def gmap(text: str) -> str:
        *lines, architecture = text.splitlines()
        given.extend([list(map(int, line.split())) for line in lines])
        # Device 0 does 8 in 5 seconds, device 1 does 7 in 10.
        assert architecture == "cmpltw 2 696 304"
        return "4\n3\t1\n0\t0\n2\t0\n1\t1\n"

    placement = _place(functools.partial(partition.scotch, gmap=gmap), problem)
    assert given[:3] == [[0], [4, 6], [0, 11]]
    vertices = given[3:]
    assert sorted(row[0] for row in vertices) == [1_250_000, 1_250_000, 2_500_000, 5_000_000]
    assert all(len(row) == 2 + 2 * row[1] for row in vertices)
    # Pairs of decisions share 40, 10 and 50 bytes; every edge is there from both ends.
    arcs = sorted(
        (vertex, end, size)
        for vertex, row in enumerate(vertices)
        for size, end in zip(row[2::2], row[3::2], strict=True)
    )
    assert sorted((end, vertex, size) for vertex, end, size in arcs) == arcs
    sizes = sorted(size for vertex, end, size in arcs if vertex < end)
    assert sizes == [1_000_000, 4_000_000, 5_000_000]
    # The seed has shuffled the vertices: that of decision 1 alone weighs half.
    heavy = next(i for i, row in enumerate(vertices) if row[0] == 5_000_000)
    assert placement[1] == (heavy in (1, 3))
    assert placement[3] == 0  # device 1 does not support it


@pytest.mark.parametrize(
    "text",
    ["2\n0 0\n", "2\n0 0\n1 2\n", "2\n0 0\n0 1\n", "2\n0 0\n1 -1\n", "GMAP version 2023"],
)
def test_invalid_mappings_are_refused(text):
    with pytest.raises(
        RuntimeError, match="does not map each of 2 vertices to a part below 2"
    ) as error:
        partition.from_scotch(text, 2, 2)
    assert "\n" not in str(error.value)
