"""CP-SAT, bounds and large-neighbourhood search of makespan against brute force."""

import functools
import itertools
import sys

import numpy as np
import pytest

from placement import methods, solvers
from placement.errors import UserError
from placement.graphs import opgraph
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.bounds import makespan
from placement.solvers.heuristics import large_neighbourhood
from placement.solvers.limits import SearchLimits
from placement.solvers.programs import cpsat_makespan, program_search
from tests import helpers
from tests.search import test_schedule_search
from tests.simulators import reference
from tests.solvers import exhaustive
from tests.solvers.heuristics import test_list_scheduling as examples

SIZE = exhaustive.SIZE
PROBLEMS = 24


@functools.cache
def _problems() -> list[tuple[Instance, float]]:
    """Returns random problems with memory limits, co-location and unsupported operations."""
    rng = np.random.default_rng(8)
    every = helpers.all_placements(SIZE[0], SIZE[-1])
    found = []
    for _ in range(PROBLEMS):
        problem, _ = reference.random_problem(
            rng, "makespan", SIZE, colocated=0.2, limited=rng.choice([0, 0.7]), shared=True
        )
        found.append((problem, float(np.min(problem.evaluate(every)))))
    return found


@pytest.mark.slow
def test_the_problems_cover_what_can_go_wrong():
    optima = np.array([optimum for _, optimum in _problems()])
    assert 2 <= np.isinf(optima).sum() <= PROBLEMS // 2
    unproven = [not solvers.infeasible(problem) for problem, _ in _problems()]
    assert (np.isinf(optima) & unproven).any()  # only a search shows that these are infeasible
    limited = [bool(len(problem.memory_limits.devices)) for problem, _ in _problems()]
    assert sum(limited) >= 5
    unsupported = [np.isinf(problem.costs.compute_s).any() for problem, _ in _problems()]
    assert sum(unsupported) >= 2


@pytest.mark.slow
def test_cpsat_equals_brute_force():
    pytest.importorskip("ortools")
    for problem, optimum in _problems():
        if solvers.infeasible(problem):
            continue
        found = program_search.cpsat(problem, 0, SearchLimits(10, 64))
        if np.isinf(optimum):
            assert found.status == "infeasible"
            continue
        assert found.status == "optimal"
        value = problem.evaluate(found.placement[None])[0]
        assert value == optimum
        assert found.bound_s == pytest.approx(optimum, rel=base.ROUNDING)


@pytest.mark.slow
def test_cpsat_free_equals_the_enumeration_of_placements_and_orders():
    pytest.importorskip("ortools")
    rng, num_faster = np.random.default_rng(4), 0
    rows = helpers.all_placements(6, 2)
    for _ in range(8):
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
        num_faster += found.value_s < problem.evaluate(rows).min()
    assert num_faster


def test_proofs_say_whether_they_hold_for_the_given_order_or_for_all():
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


def test_cpsat_proves_the_optima_of_the_papers_examples():
    pytest.importorskip("ortools")
    for problem, optimum in ((examples.heft_example(), 73), (examples.peft_example(), 113)):
        found = program_search.cpsat(problem, 0, SearchLimits(20, 640))
        assert found.status == "optimal"
        assert problem.evaluate(found.placement[None])[0] == optimum


def test_without_ortools_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(UserError, match=r"-e '\.\[solvers\]'"):
        program_search.cpsat(_problems()[0][0], 0, SearchLimits(1, 64))


@pytest.mark.slow
def test_a_program_that_would_take_gigabytes_is_refused(monkeypatch):
    monkeypatch.setattr(cpsat_makespan, "_MAX_ROWS", 10)
    problem = helpers.random_problem()._replace(objective="makespan")
    with pytest.raises(UserError, match="cpsat takes at most 10: give a smaller graph"):
        methods.solve(problem, "cpsat")


def test_the_bound_is_never_above_the_optimum_and_often_close():
    tight = 0
    for problem, optimum in _problems():
        bound = makespan.bound_makespan(problem, SearchLimits(60, 1))
        assert bound <= optimum * (1 + base.ROUNDING)
        tight += bound > 0.9 * optimum
    assert tight > 6


def test_the_bound_by_hand():
    graph = helpers.chain(3)
    problem = helpers.as_problem(graph, helpers.unit_costs(graph), "makespan")
    assert makespan.bound_makespan(problem, SearchLimits(60, 1)) == 3  # the critical path
    # op1 must be on device 1: leaving it or coming to it takes more than 100.
    compute_s = np.array([[1, 2], [np.inf, 2], [1, 2]], np.float32)
    costs = helpers.unit_costs(graph, compute_s=compute_s)
    problem = helpers.as_problem(graph, costs, "makespan")
    assert makespan.bound_makespan(problem, SearchLimits(60, 1)) == 6  # all three on device 1


def test_the_bound_of_what_takes_no_time_is_0():
    graph = helpers.chain(3)
    costs = helpers.unit_costs(graph)
    costs = costs._replace(
        **{f: 0 * getattr(costs, f) for f in costs._fields if "_s" in f and f != "segment_costs"}
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    assert makespan.bound_makespan(problem, SearchLimits(60, 1)) == 0


def test_the_bound_knows_that_load_must_be_shared():
    graph = opgraph.make_graph(
        name="six",
        op_names=list("abcdef"),
        op_types=["MatMul"] * 6,
        senders=[],
        receivers=[],
        edge_bytes=[],
    )
    equal = helpers.unit_costs(graph, compute_s=np.ones((6, 2), np.float32))
    problem = helpers.as_problem(graph, equal, "makespan")
    assert makespan.bound_makespan(problem, SearchLimits(60, 1)) == pytest.approx(3, rel=2e-3)
    # Device 1 takes twice as long: shares of 4 and 2 operations, 4 seconds each.
    problem = problem._replace(costs=helpers.unit_costs(graph))
    assert makespan.bound_makespan(problem, SearchLimits(60, 1)) == pytest.approx(4, rel=2e-3)
    # Device 0 holds one operation: the other five take 10 on device 1.
    full = helpers.unit_costs(
        graph,
        memory_bytes=np.ones(6, np.float32),
        capacity_bytes=np.array([1, np.inf], np.float32),
    )
    problem = problem._replace(costs=full)
    assert makespan.bound_makespan(problem, SearchLimits(60, 1)) == pytest.approx(10, rel=2e-3)


def _wide(num_ops):
    """Returns a wide graph on three devices, two of which cost the same."""
    rng = np.random.default_rng(3)
    graph = helpers.random_dag_of_size(rng, num_ops, 2 * num_ops, num_ops)
    compute_s = rng.uniform(1, 2, (num_ops, 1)) * rng.uniform(0.5, 2, (num_ops, 3))
    compute_s[:, 2] = compute_s[:, 1]
    costs = helpers.unit_costs(graph, 3, compute_s=compute_s.astype(np.float32))
    return helpers.as_problem(graph, costs, "makespan")


def test_a_sample_of_the_classes_bounds_almost_as_well_and_no_more(monkeypatch):
    problem = _wide(400)
    exact = makespan.bound_makespan(problem, SearchLimits(60, 1))
    monkeypatch.setattr(makespan, "_MAX_SOLVED_CLASSES", 100)
    monkeypatch.setattr(makespan, "_SAMPLE_CLASSES", 100)
    solve, sizes = makespan._minimise_excess, []
    monkeypatch.setattr(
        makespan,
        "_minimise_excess",
        lambda rows, is_open: (sizes.append(len(is_open)), solve(rows, is_open))[1],
    )
    sampled = makespan.bound_makespan(problem, SearchLimits(60, 1))
    assert set(sizes) == {100}
    assert 0.94 * exact < sampled <= exact * (1 + 2e-3)


def test_a_bound_that_is_cut_off_is_the_longest_path_at_least():
    problem = _wide(100)
    whole = makespan.bound_makespan(problem, SearchLimits(60, 1))
    edges = makespan.collect_edges(problem)
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    through_s = makespan.compute_windows(edges, compute_s).compute_through_s()
    path_s = through_s.min(axis=1).max()
    assert path_s <= makespan.bound_makespan(problem, SearchLimits(0, 1)) < whole


def test_windows_are_the_same_compiled(monkeypatch):
    problem = _wide(60)
    edges = makespan.collect_edges(problem)
    compute_s = np.array(problem.costs.compute_s, np.float64)
    compute_s[::7, 1] = np.inf
    looped = makespan.compute_windows(edges, compute_s)
    monkeypatch.setattr(makespan, "_MAX_LOOPED_EDGES", 0)
    compiled = makespan.compute_windows(edges, compute_s)
    assert compiled.head_s.dtype == np.float64
    np.testing.assert_allclose(compiled.head_s, looped.head_s, rtol=1e-12)
    np.testing.assert_allclose(compiled.tail_s, looped.tail_s, rtol=1e-12)
    assert looped.head_s.max() > 0


@pytest.mark.slow
def test_polish_never_worsens_and_ends_within_its_budget():
    improved = 0
    for problem, optimum in _problems()[:16]:
        rng = np.random.default_rng(0)
        evaluate = problem.evaluate
        given = rng.integers(0, SIZE[-1], SIZE[0])[problem.leaders]
        found = large_neighbourhood.polish(problem, given, 0, SearchLimits(10, 640))
        before, after = (float(evaluate(p[None])[0]) for p in (given, found.placement))
        assert optimum <= after <= before
        assert found.evaluations <= 640
        improved += after < before
    assert improved > 8


@pytest.mark.slow
def test_lns_nearly_always_finds_the_optimum_of_small_problems():
    missed = 0
    for problem, optimum in _problems()[:9]:
        found = large_neighbourhood.lns(problem, 0, SearchLimits(10, 1920))
        missed += float(problem.evaluate(found.placement[None])[0]) > optimum
    assert missed <= 1


def test_a_seed_repeats_and_a_block_leaves_one_device_where_single_moves_do_not():
    # Two chains of eight; a transfer takes as long as two operations.
    graph = helpers.fork_join(2, 8)
    costs = helpers.unit_costs(
        graph,
        compute_s=np.ones((18, 2), np.float32),
        transfer_latency_s=2 * (1 - np.eye(2, dtype=np.float32)),
        transfer_s_per_byte=np.zeros((2, 2), np.float32),
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    evaluate = problem.evaluate
    alone = np.zeros(18, int)
    single = np.where(np.eye(18, dtype=bool), 1, alone)
    assert min(evaluate(single)) >= evaluate(alone[None])[0] == 18
    found = [
        large_neighbourhood.polish(problem, alone, 3, SearchLimits(10, 1280)) for _ in range(2)
    ]
    # op0 0-1; device 1 has the input at 3 and is done at 11, its result is there at 13.
    assert evaluate(found[0].placement[None])[0] <= 14
    assert found[0].placement.tolist() == found[1].placement.tolist()
