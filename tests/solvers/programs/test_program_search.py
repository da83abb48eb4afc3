"""The warm start of exact searches, and that no search returns a worse placement."""

import contextlib
import dataclasses
import time
import types
from typing import Any

import numpy as np
import pytest

from placement import methods, solvers
from placement.errors import UserError
from placement.graphs import opgraph
from placement.instance import Instance
from placement.solvers import base, limits
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import program_search
from placement.types import CostModel, Solution, TensorBytes
from placement.zoo import synthetic
from tests import helpers
from tests.solvers import exhaustive

LIMIT_S = 6_000.0  # heuristics have a tenth of it, which the slowest machine does not need
PROGRAMS = (
    *(("milp", "max_load"), ("milp_noncontiguous", "max_load"), ("milp", "subgraph")),
    *(("cpsat", "makespan"), ("cpsat", "max_load"), ("cpsat", "subgraph")),
)


def workload(objective: str) -> Instance:
    """Returns a problem like the public ones: equal, small accelerators and a slow host."""
    graph = synthetic.build("synthetic:family=fork_join,ops=60,seed=1,width=3")
    rng = np.random.default_rng(0)
    pairs = np.where(np.arange(60) % 10 == 5, np.arange(60) - 1, np.arange(60))
    graph = dataclasses.replace(graph, colocation=pairs.astype(np.int32))
    accelerator = np.array([0, 1, 2, 3, -1], np.int32)
    seconds = rng.uniform(0.5, 2, (graph.num_ops, 1)) * np.where(accelerator >= 0, 1, 10)
    memory_bytes = rng.uniform(0.5, 2, graph.num_ops).astype(np.float32)
    room = np.where(accelerator >= 0, 0.2 * memory_bytes.sum(), np.inf)
    costs = CostModel(
        compute_s=seconds.astype(np.float32),
        transfer_latency_s=np.zeros((5, 5), np.float32),
        transfer_s_per_byte=np.zeros((5, 5), np.float32),
        transfer_fixed_s=rng.uniform(0, 2, graph.num_edges).astype(np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=memory_bytes,
        capacity_bytes=room.astype(np.float32),
        accelerator=accelerator,
    )
    return Instance(graph, costs, objective, ("a", "b", "c", "d", "host"))


def of_heuristics(problem: Instance) -> float:
    """Returns the best value of the heuristics for the objective, plus rounding."""
    names = ("greedy", "dp_split", "linearised_dp", "pipedream")
    names += ("heft", "peft", "m_topo", "m_etf", "m_sct")
    values = []
    for name in names:
        if problem.objective in methods.METHODS[name].objectives:
            with contextlib.suppress(UserError):  # of accelerators' parts, which splits refuse
                values.append(methods.solve(problem, name).value_s)
    return min(values) * (1 + base.ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "objective"), PROGRAMS)
def test_without_time_for_a_proof_no_program_is_worse_than_a_heuristic(
    name, objective, monkeypatch
):
    if name == "cpsat":
        pytest.importorskip("ortools")
    # The clock stands still until the program has its start, and then leaves it little time.
    limit_s, proof_s, find = 60.0, 0.3, program_search.find_warm_start
    started_s: list[float] = []

    def find_and_start_clock(*args: Any, **options: Any) -> Solution:
        start = find(*args, **options)
        started_s.append(time.monotonic())
        return start

    def monotonic() -> float:
        return limit_s - proof_s + time.monotonic() - started_s[0] if started_s else 0.0

    problem = workload(objective)
    heuristics_s = of_heuristics(problem)
    assert np.isfinite(heuristics_s)
    monkeypatch.setattr(program_search, "find_warm_start", find_and_start_clock)
    monkeypatch.setattr(limits, "time", types.SimpleNamespace(monotonic=monotonic))
    found = methods.solve(problem, name, time_limit_s=limit_s)
    assert len(started_s) == 1
    assert found.bound_s <= found.value_s <= heuristics_s


@pytest.mark.slow
@pytest.mark.parametrize(("name", "objective"), PROGRAMS)
def test_of_small_problems_no_program_is_worse_than_a_heuristic(name, objective):
    if name == "cpsat":
        pytest.importorskip("ortools")
    for problem in exhaustive.problems(objective, 6, seed=7, shared=objective == "subgraph"):
        if not solvers.infeasible(problem):
            assert methods.solve(problem, name).value_s <= of_heuristics(problem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "contiguous"),
    [("makespan", False), ("subgraph", False), ("max_load", False), ("max_load", True)],
)
def test_a_start_is_no_worse_than_a_heuristic_and_tells_itself(objective, contiguous):
    finite = 0
    for problem in (workload(objective), *exhaustive.problems(objective, 6, seed=8)):
        if solvers.infeasible(problem):
            continue
        told: list[tuple[int, float, np.ndarray | None]] = []
        watched = SearchLimits(LIMIT_S, 2_000, lambda *step, told=told: told.append(step))
        start = program_search.find_warm_start(problem, 0, watched, contiguous=contiguous)
        assert start.value_s <= of_heuristics(problem)
        assert told[-1][:2] == (start.evaluations, start.value_s)
        if start.placement is not None:
            finite += 1
            assert problem.value_s(start.placement) == pytest.approx(start.value_s)
            reach = program_search.reachability_within_passes(problem.graph)
            assert not contiguous or program_search.is_contiguous(start.placement, reach)
    assert finite > 3


def test_large_neighbourhoods_improve_a_start():
    problem = workload("subgraph")
    short = program_search.find_warm_start(problem, 0, SearchLimits(LIMIT_S, 500))
    long = program_search.find_warm_start(problem, 0, SearchLimits(LIMIT_S, 32_000))
    assert long.value_s < short.value_s
    assert short.evaluations < long.evaluations


def test_out_of_time_still_gives_a_start():
    start = program_search.find_warm_start(workload("max_load"), 0, SearchLimits(0.0, 1000))
    assert np.isfinite(start.value_s)


@pytest.mark.parametrize("budget", [1, 100, 1_000])
def test_warm_start_keeps_its_budget(budget):
    start = program_search.find_warm_start(workload("makespan"), 0, SearchLimits(LIMIT_S, budget))
    assert 1 <= start.evaluations <= budget


@pytest.mark.parametrize(("name", "objective"), PROGRAMS)
def test_program_survives_copies_of_constants(name, objective):
    """A copy of the constant of op0 does not fit on device 1, where op1 is fast."""
    graph = opgraph.make_graph(
        name="copies",
        op_names=["a", "b"],
        op_types=["MatMul"] * 2,
        senders=[],
        receivers=[],
        edge_bytes=[],
        copy_sources=[0],
        copy_readers=[1],
        copy_bytes=[100],
        copy_constants=[0],
    )
    costs = helpers.unit_costs(
        graph,
        compute_s=np.array([[1, 9], [3, 1]], np.float32),
        memory_bytes=np.array([100, 0], np.float32),
        capacity_bytes=np.array([np.inf, 50], np.float32),
    )
    solution = methods.solve(helpers.as_problem(graph, costs, objective), name)
    assert solution.placement.tolist() == [0, 0]
    assert (solution.value_s, solution.status) == (4.0, "finished")
    assert solution.bound_s == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["milp", "milp_noncontiguous", "cpsat"])
def test_program_survives_tensors_in_memory(name):
    """Only device 1, which is slow, holds the tensor."""
    graph = helpers.chain(2)
    sizes = np.array([1024], np.float32)
    costs = helpers.unit_costs(
        graph,
        capacity_bytes=np.array([100, np.inf], np.float32),
        tensor_bytes=TensorBytes(sizes, sizes),
    )
    solution = methods.solve(helpers.as_problem(graph, costs, "max_load"), name)
    assert solution.placement.tolist() == [1, 1]
    assert (solution.value_s, solution.status) == (4.0, "finished")
    assert solution.bound_s == pytest.approx(2.0)
