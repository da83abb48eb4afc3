"""The contract of every solver, checked against the enumeration of six small random problems."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from placement import methods, simulators, solvers
from placement.errors import UserError
from placement.problem import Problem
from placement.solvers import base, limits, starts
from placement.types import Solution, TensorBytes
from tests import helpers
from tests.simulators import reference
from tests.solvers import exhaustive

# Enough for a search to go round its loop, few enough that it need not find the optimum.
BUDGET = 320
# They report better and better placements.
REPORTING = (
    *("search", "local_search", "annealing", "genetic", "brute_force", "lns"),
    *("milp", "milp_noncontiguous", "cpsat", "diagram"),
)
PAIRS = [
    (name, objective)
    for name, method in methods.METHODS.items()
    if method.kind in ("search", "solver")
    for objective in method.objectives
]
# The searches whose first report and whose end on request are checked.
STOPPED = (
    *(("search", "makespan"), ("search", "serial"), ("annealing", "makespan")),
    *(("lns", "makespan"), ("brute_force", "subgraph"), ("graph_cut", "serial")),
    *(("milp", "subgraph"), ("cpsat", "makespan")),
)


def solve(name: str, problem: Problem, seed: int = 1, **options: Any) -> Solution:
    if missing := methods.METHODS[name].missing():
        pytest.skip(missing)
    return methods.solve(problem, name, seed=seed, **({"budget": BUDGET} | options))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "objective"),
    helpers.nightly_except(
        [("search", "makespan"), *dict(reversed(PAIRS)).items()],  # each under its first objective
        PAIRS,
    ),
)
def test_solutions_agree_with_enumeration(name, objective):
    method, statuses = methods.METHODS[name], []
    for problem, values_s in exhaustive.six(objective):
        steps: list[tuple] = []
        try:
            solution = solve(name, problem, observe=lambda *step, to=steps: to.append(step[:3]))
        except UserError:  # of a split where parts of an accelerator share a limited memory
            assert name == "dp_split"
            continue
        statuses.append(solution.status)
        last_problem, last = problem, solution
        possible_s = exhaustive.admitted(name, solution, problem, values_s)
        assert not solution.bound_s > min(possible_s.min() * (1 + 1e-6), solution.value_s)
        if solution.status == "infeasible":
            assert np.isinf(possible_s).all()
        elif solution.status == "failed":
            assert np.isinf(solution.value_s)
        elif solution.order is not None:  # it may be faster than every placement in HEFT's order
            ordered = problem.with_order(solution.order)
            assert solution.value_s == ordered.value_s(solution.placement) < np.inf
            assert solution.status != "optimal" or solution.value_s <= possible_s.min()
        else:
            row = (helpers.every_placement(problem) == solution.placement).all(axis=1).argmax()
            assert solution.value_s == values_s[row] < np.inf
            if solution.status == "optimal":
                np.testing.assert_allclose(solution.value_s, possible_s.min(), rtol=1e-6)
        if name in REPORTING and np.isfinite(solution.value_s):
            evaluations, best_s, rows = zip(*steps, strict=True)
            assert list(evaluations) == sorted(evaluations)
            assert 1 <= evaluations[0] <= evaluations[-1] == solution.evaluations
            assert list(best_s) == sorted(best_s, reverse=True)
            assert best_s[-1] == solution.value_s
            if solution.order is None:
                values = [np.inf if row is None else problem.value_s(row) for row in rows]
                assert list(best_s) == values
    # No solver passes by giving up; but what does not search often breaks a limit.
    num_solved = sum(status not in ("infeasible", "failed") for status in statuses)
    assert num_solved >= (1 if name in ("random", "round_robin", "topological", "dp_split") else 3)
    if method.proves:
        assert set(statuses) <= {"optimal", "infeasible"}
    # The seed decides; where it does not matter, another one finds the same.
    again = solve(name, last_problem, 1 if method.seeded else 2)
    np.testing.assert_array_equal(again.placement, last.placement)
    assert again.status == last.status


@functools.cache
def memory_problems(objective: str) -> list[tuple[Problem, np.ndarray]]:
    """Returns the six problems, in which copies and living tensors may exceed a memory."""
    rng = np.random.default_rng(6)
    pairs = []
    for problem, _ in exhaustive.six(objective):
        graph, num_devices = problem.graph, len(problem.devices)
        ops = rng.permutation(graph.num_ops)
        graph = dataclasses.replace(
            graph,
            copy_sources=np.repeat(ops[:1], len(ops) - 1),
            copy_readers=ops[1:],
            copy_bytes=np.full(len(ops) - 1, 200),
            copy_constants=np.zeros(len(ops) - 1, int),
        )
        tensor_bytes = rng.integers(0, 600, (2, graph.num_ops))[:, graph.senders]
        costs = problem.costs._replace(
            tensor_bytes=TensorBytes(*tensor_bytes.astype(np.float32)),
            accelerator=np.arange(num_devices, dtype=np.int32),
        )
        problem = problem._replace(graph=graph, costs=costs)
        rows = rng.permutation(helpers.every_placement(problem))[:num_devices]
        peaks = np.diagonal([problem.peak_bytes(row) for row in rows])
        capacity = np.where(np.arange(num_devices) == rng.integers(num_devices), 2**20, peaks)
        costs = costs._replace(capacity_bytes=capacity.astype(np.float32))
        problem = problem._replace(costs=costs)
        pairs.append((problem, np.asarray(problem.evaluate(helpers.every_placement(problem)))))
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "objective"),
    helpers.nightly_except(
        (("cpsat", "makespan"), ("ideals_dp", "max_load")),
        [
            pair
            for pair in PAIRS
            if methods.METHODS[pair[0]].proves and pair[0] not in ("cpsat_free", "brute_force")
        ],
    ),
)
def test_exact_solvers_survive_memory(name, objective):
    statuses = set()
    for problem, values_s in memory_problems(objective):
        solution = solve(name, problem)
        statuses.add(str(solution.status))
        possible_s = exhaustive.admitted(name, solution, problem, values_s)
        assert solution.status != "infeasible" or np.isinf(possible_s).all()
        rows = helpers.every_placement(problem)
        assert solution.value_s == values_s[(rows == solution.placement).all(axis=1).argmax()]
        assert np.isinf(solution.value_s) == (solution.status in ("infeasible", "failed"))
        assert not solution.bound_s > possible_s.min() * (1 + base.ROUNDING)
        if solution.status == "optimal":
            np.testing.assert_allclose([solution.value_s, solution.bound_s], possible_s.min())
        singles_s = [values_s[(rows == d).all(axis=1)][0] for d in range(3)]
        assert solution.value_s <= min(singles_s)
    assert "optimal" in statuses
    assert name == "graph_cut" or "finished" in statuses


def medium_problem(objective: str, num_ops: int = 40) -> Problem:
    graph = helpers.random_dag(np.random.default_rng(5), num_ops, edge_probability=0.2)
    costs = helpers.random_costs(np.random.default_rng(6), graph, 3)
    costs = costs._replace(accelerator=np.array([0, 1, -1], np.int32))
    return helpers.as_problem(graph, costs, objective)


@pytest.mark.parametrize(("name", "objective"), helpers.nightly_except(STOPPED[:-2], STOPPED))
def test_stopped_search_returns_incumbent(name, objective):
    """The first report is the best single device, before anything is compiled."""
    problem = medium_problem(objective, 8 if name == "brute_force" else 40)
    singles = problem.single_devices
    expected = min(zip(reference.latencies(problem, singles), singles.tolist(), strict=True))
    reports: list[tuple[float, list[int]]] = []

    def observe(evaluations, best_s, placement, numbers):
        reports.append((best_s, placement.tolist()))
        if len(reports) == 1:
            assert compiled == []

    with helpers.count_compilations() as compiled:
        solution = methods.solve(
            problem,
            name,
            budget=10**7,
            observe=observe,
            stop=lambda: len(reports) > 2,
        )
    assert reports[0] == expected
    assert solution.status in ("interrupted", "optimal")
    assert solution.value_s <= reports[-1][0] * (1 + base.ROUNDING)


@pytest.mark.parametrize("kind", limits.START_KINDS)
@pytest.mark.parametrize("name", ["search", "lns", "local_search", "annealing", "genetic"])
def test_searches_share_their_starts(name, kind):
    problem = medium_problem("makespan")
    start_limits = limits.SearchLimits(60.0, 10**6, starts=kind)
    begun = [*starts.evaluate_starts(problem, 1, start_limits)]
    solution = solve(name, problem, budget=begun[-1].evaluations, starts=kind)
    best_s = min(start.value_s for start in begun)
    if name == "search":  # tries other orders of priority, and ends at a start that is optimal
        assert solution.value_s <= best_s
        assert solution.evaluations <= begun[-1].evaluations
    else:
        assert solution.value_s == best_s
        assert solution.evaluations == begun[-1].evaluations


@pytest.mark.parametrize("objective", simulators.OBJECTIVES)
def test_lower_bounds_are_valid(objective):
    shares = []
    for problem, values_s in exhaustive.six(objective):
        bound_s, optimum_s = solvers.lower_bound(problem), values_s.min()
        assert bound_s <= optimum_s * (1 + 1e-5)
        if 0 < optimum_s < np.inf:
            shares.append(bound_s / optimum_s)
    assert np.median(shares) > 0.25  # transfers are dear here, and most bounds ignore them


def test_unsupported_operation_is_one_line():
    problem = exhaustive.six("serial")[0][0]
    compute_s = np.array(problem.costs.compute_s)
    compute_s[2] = np.inf
    costs = problem.costs._replace(compute_s=compute_s)
    solution = solve("graph_cut", problem._replace(costs=costs))
    assert (solution.status, solution.value_s) == ("infeasible", np.inf)
    assert "'op2'" in solution.reason
    assert "\n" not in solution.reason


def test_insufficient_memory_is_one_line():
    costs = helpers.unit_costs(
        helpers.chain(3),
        memory_bytes=np.full(3, 10, np.float32),
        capacity_bytes=np.full(2, 14, np.float32),
    )
    problem = helpers.as_problem(helpers.chain(3), costs, "serial")
    assert methods.solve(problem, "local_search").status_text == (
        "infeasible: operations occupy 30 bytes, all devices together have 28"
    )


def test_mistakes_are_one_line():
    problem = helpers.as_problem(helpers.chain(3), helpers.unit_costs(helpers.chain(3)), "serial")
    with pytest.raises(UserError, match=r"unknown method 'magic'; valid: .*graph_cut"):
        methods.solve(problem, "magic")
    with pytest.raises(UserError, match=r"'graph_cut' is for objective serial, not 'makespan'"):
        methods.solve(problem._replace(objective="makespan"), "graph_cut")


def test_no_time_gives_placement():
    problem = exhaustive.six("serial")[0][0]
    solution = solve("annealing", problem, time_limit_s=0.0)
    assert solution.status == "time limit"
    assert np.isfinite(solution.value_s)
