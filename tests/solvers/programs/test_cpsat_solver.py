import numpy as np
import pytest

from placement.solvers.limits import SearchLimits
from placement.solvers.programs import cpsat_solver, program_search
from placement.types import Solution
from tests import helpers
from tests.solvers.programs.test_program_search import LIMIT_S, workload


@pytest.mark.parametrize("objective", ["makespan", "max_load", "subgraph"])
def test_a_search_begins_at_its_start(monkeypatch, objective):
    """The hint is complete and feasible, whichever of the equal devices the start uses."""
    pytest.importorskip("ortools")
    problem = workload(objective)
    start = program_search.find_warm_start(problem, 0, SearchLimits(LIMIT_S, 1_000))
    assert start.placement is not None
    renamed = start._replace(placement=np.array([2, 0, 3, 1, 4])[start.placement])
    monkeypatch.setattr(program_search, "find_warm_start", lambda *_, **__: renamed)
    first: list[float] = []

    run = cpsat_solver.solve

    def solve(cp_model, model, limits, parameters, on_solution=None):
        if on_solution is None:  # the search for the hint itself
            return run(cp_model, model, limits, parameters)
        assert len(model.proto.solution_hint.vars) == len(model.proto.variables)
        fixed = {**parameters, "fix_variables_to_their_hinted_value": True}
        status, solver = run(cp_model, model, limits, fixed)
        assert status == cp_model.OPTIMAL
        on_solution(solver.value)
        return status, solver

    monkeypatch.setattr(cpsat_solver, "solve", solve)
    limits = SearchLimits(LIMIT_S, 0, lambda _, value_s, *__: first.append(value_s))
    program_search.cpsat(problem, 0, limits)
    assert first[0] == pytest.approx(start.value_s, rel=1e-5)


@pytest.mark.parametrize("size", [0.3, 1.0, 1e9 / 3])
def test_bytes_need_not_be_whole(size):
    bytes_ = np.full(4, size, np.float32).astype(np.float64)
    (one, *_), room = cpsat_solver.round_bytes(bytes_, 2 * float(bytes_[0]))
    assert room == 2 * one
    assert bytes_[0] / (2 * bytes_[0]) == one / room


@pytest.mark.parametrize("objective", ["makespan", "max_load", "subgraph"])
def test_memories_of_less_than_a_byte_an_operation_are_filled(monkeypatch, objective):
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
    monkeypatch.setattr(program_search, "find_warm_start", lambda *_, **__: start)
    found = program_search.cpsat(problem, 0, SearchLimits(20.0, 0))
    assert found.status == "optimal"
    assert problem.value_s(found.placement) == (2 if objective == "max_load" else 4)
