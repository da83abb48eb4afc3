"""Integer and constraint programs: enumeration, proofs, starts, limits of time and memory."""

import dataclasses
import itertools
import sys
import time
import types
from typing import Any

import numpy as np
import pytest

from placement import methods
from placement.errors import UserError
from placement.problem import Problem
from placement.solvers import base, limits
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import cpsat_makespan, program_search, warm_start
from placement.types import CostModel, Solution
from placement.zoo import synthetic
from tests import helpers
from tests.search import test_schedule_search
from tests.simulators import reference
from tests.solvers import exhaustive
from tests.solvers.heuristics import test_list_scheduling as examples

LIMIT_S = 6_000.0  # heuristics have a tenth of it, which the slowest machine does not need
PROGRAMS = (("milp", "max_load"), ("cpsat", "makespan"), ("milp", "subgraph"))


def workload(objective: str) -> Problem:
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
    return Problem(graph, costs, objective, ("a", "b", "c", "d", "host"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "objective", "num_devices"),
    [
        *(("milp_noncontiguous", "max_load", 3), ("milp", "subgraph", 3)),
        *(("cpsat", "max_load", 3), ("cpsat", "max_load", 4), ("cpsat", "makespan", 3)),
        *(("cpsat", "subgraph", 3), ("cpsat", "subgraph", 4)),
    ],
)
def test_programs_equal_enumeration(method, objective, num_devices):
    """Under `subgraph` and `makespan`, devices may be parts of one accelerator."""
    shared = objective != "max_load"
    for problem in exhaustive.problems(
        objective, 12, seed=1, shared=shared, num_devices=num_devices
    ):
        exhaustive.check(methods.solve(problem, method), exhaustive.optimum(problem))


@pytest.mark.slow
def test_cpsat_free_equals_enumeration():
    pytest.importorskip("ortools")
    rng = np.random.default_rng(4)
    rows = helpers.all_placements(6, 2)
    for _ in range(3):
        problem, _ = reference.random_problem(rng, "makespan", (6, 4, 4, 2))
        position = [np.argsort(order) for order in itertools.permutations(range(6))]
        senders, receivers = problem.graph.senders, problem.graph.receivers
        orders = [np.argsort(p) for p in position if (p[senders] < p[receivers]).all()]
        values_s = [problem.with_order(order).evaluate(rows).min() for order in orders]
        if np.isinf(min(values_s)):
            continue
        found = methods.solve(problem, "cpsat_free", time_limit_s=20)
        assert (found.status, found.scope) == ("optimal", "all")
        assert found.value_s == min(values_s)


def test_proofs_name_their_scope():
    pytest.importorskip("ortools")
    problem = test_schedule_search.waiting_problem()  # 11 s in HEFT's order, 8 s in the best
    for method in ("cpsat", "diagram", "brute_force"):
        found = methods.solve(problem, method, time_limit_s=20)
        assert (found.value_s, found.status, found.scope) == (11, "optimal", "given order")
    free = methods.solve(problem, "cpsat_free", time_limit_s=20)
    assert (free.value_s, free.status, free.scope) == (8, "optimal", "all")
    assert problem.with_order(free.order).value_s(free.placement) == 8
    # In the best order the proof of the given order is that of all.
    best = methods.solve(problem.with_order(free.order), "cpsat", time_limit_s=20)
    assert best.value_s == 8


def test_cpsat_proves_paper_examples():
    pytest.importorskip("ortools")
    for problem, optimum in ((examples.heft_example(), 73), (examples.peft_example(), 113)):
        found = program_search.cpsat(problem, 0, SearchLimits(20, 640))
        assert found.status == "optimal"
        assert problem.evaluate(found.placement[None])[0] == optimum


def test_missing_ortools_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    for objective in ("makespan", "max_load"):
        with pytest.raises(UserError, match=r"ortools is not installed.*or the extra 'solvers'"):
            methods.solve(workload(objective), "cpsat")


@pytest.mark.slow
def test_huge_programs_are_refused(monkeypatch):
    monkeypatch.setattr(cpsat_makespan, "_MAX_ROWS", 10)
    problem = helpers.random_problem()._replace(objective="makespan")
    with pytest.raises(UserError, match="cpsat takes at most 10: give a smaller graph"):
        methods.solve(problem, "cpsat")


@pytest.mark.parametrize("objective", ["makespan", "max_load", "subgraph"])
def test_memories_below_one_byte(monkeypatch, objective):
    pytest.importorskip("ortools")
    graph = helpers.chain(4)
    costs = helpers.unit_costs(
        graph,
        3,
        compute_s=np.array([[1, 1, 10]] * 4, np.float32),
        transfer_latency_s=np.zeros((3, 3), np.float32),
        transfer_s_per_byte=np.zeros((3, 3), np.float32),
        memory_bytes=np.full(4, 0.3, np.float32),
        capacity_bytes=np.array([0.7, 0.7, np.inf], np.float32),
        accelerator=np.array([0, 1, -1], np.int32),
    )
    problem = helpers.as_problem(graph, costs, objective)
    start = Solution(np.full(4, 2), 40.0, evaluations=1)
    monkeypatch.setattr(warm_start, "find_warm_start", lambda *_, **__: start)
    found = program_search.cpsat(problem, 0, SearchLimits(20.0, 0))
    assert found.status == "optimal"
    assert problem.value_s(found.placement) == (2 if objective == "max_load" else 4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "objective"), helpers.nightly_except(PROGRAMS[:2], PROGRAMS))
def test_no_proof_keeps_the_start(name, objective, monkeypatch):
    if name == "cpsat":
        pytest.importorskip("ortools")
    # The clock stands still until the program has its start, and then leaves it little time.
    limit_s, proof_s, find = 60.0, 0.3, warm_start.find_warm_start
    started_s: list[float] = []

    def find_and_start_clock(*args: Any, **options: Any) -> Solution:
        start = find(*args, **options)
        started_s.append(time.monotonic())
        return start

    def monotonic() -> float:
        return limit_s - proof_s + time.monotonic() - started_s[0] if started_s else 0.0

    problem = workload(objective)
    heuristics_s = min(
        methods.solve(problem, heuristic).value_s
        for heuristic in ("greedy", "dp_split", "linearised_dp", "pipedream", "heft")
        if objective in methods.METHODS[heuristic].objectives
    )
    assert np.isfinite(heuristics_s)
    monkeypatch.setattr(warm_start, "find_warm_start", find_and_start_clock)
    monkeypatch.setattr(limits, "time", types.SimpleNamespace(monotonic=monotonic))
    found = methods.solve(problem, name, time_limit_s=limit_s)
    assert len(started_s) == 1
    assert found.bound_s <= found.value_s <= heuristics_s * (1 + base.ROUNDING)


def test_start_keeps_its_limits():
    start = warm_start.find_warm_start(workload("max_load"), 0, SearchLimits(0.0, 1000))
    assert np.isfinite(start.value_s)
    for budget in (1, 100, 1_000):
        start = warm_start.find_warm_start(workload("makespan"), 0, SearchLimits(LIMIT_S, budget))
        assert 1 <= start.evaluations <= budget
