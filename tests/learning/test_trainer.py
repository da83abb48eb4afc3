import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.instance import Instance
from placement.learning import ppo, reinforce, trainer
from placement.learning.base import Learner, Settings
from placement.learning.trainer import Progress
from placement.policies import colocrl
from placement.types import Evaluate, OpGraph, Policy
from tests import helpers

DIAMOND, FORK_JOIN = helpers.diamond(), helpers.fork_join(branches=3, length=2)
BATCH = 16


ALGORITHMS = pytest.mark.parametrize(
    "make", [reinforce.make_learner, ppo.make_learner], ids=["reinforce", "ppo"]
)


def _problem(graph: OpGraph, seed: int = 3, objective: str = "serial") -> Instance:
    costs = helpers.random_costs(np.random.default_rng(seed), graph, 2)
    return Instance(graph, costs, objective, ("a", "b"))


def _tight() -> Instance:
    """Gives each device memory for half of the operations, so that most placements overflow."""
    problem = _problem(FORK_JOIN, 11)
    costs = problem.costs._replace(
        memory_bytes=np.ones(FORK_JOIN.num_ops, np.float32),
        capacity_bytes=np.full(2, FORK_JOIN.num_ops / 2, np.float32),
    )
    return problem._replace(costs=costs)


def _evaluator(graph: OpGraph, seed: int = 3) -> Evaluate:
    return _problem(graph, seed).evaluate


def _optimum(graph: OpGraph, evaluate: Evaluate) -> tuple[float, float]:
    """Returns the least latency of all placements and that of the best single device."""
    values = np.asarray(evaluate(helpers.all_placements(graph.num_ops, 2)))
    return float(values.min()), float(values[[0, -1]].min())


@functools.cache
def _learner(make: Callable[..., Learner] = reinforce.make_learner) -> Learner:
    settings = Settings(num_samples=BATCH, learning_rate=0.1)
    return make(helpers.independent_policy(), settings)


def _start(evaluate: Evaluate, graph: OpGraph = DIAMOND, learner: Learner | None = None, seed=0):
    return trainer.start(
        learner or _learner(), jax.random.key(seed), helpers.batched(graph), evaluate,
        graph.num_ops, 2,
    )  # fmt: skip


def _run(evaluate: Evaluate, budget: int, progress: Progress | None = None) -> list[trainer.Report]:
    progress = _start(evaluate) if progress is None else progress
    return list(trainer.search(_learner(), helpers.batched(DIAMOND), evaluate, progress, budget))


def _simulated(
    problem: Instance,
    budget: int,
    progress: Progress | None = None,
    *,
    learner: Learner | None = None,
    chunk: int = 4,
) -> list[trainer.Report]:
    """Runs `search_simulated` on a problem."""
    learner = learner or _learner()
    if progress is None:
        progress = _start(problem.evaluate, problem.graph, learner)
    simulator, graph = trainer.Simulator.from_problem(problem), helpers.batched(problem.graph)
    return list(trainer.search_simulated(learner, graph, simulator, progress, budget, chunk=chunk))


def _records(reports: list[trainer.Report]) -> list[dict[str, float]]:
    return [record for report in reports for record in report.records]


def _latencies_s(reports: list[trainer.Report]) -> list[np.ndarray]:
    return [latencies_s for report in reports for latencies_s in report.latencies_s]


def _count_calls(evaluate: Evaluate) -> tuple[Evaluate, list[np.ndarray]]:
    """Returns the same evaluation, and the list of all batches that it evaluates."""
    batches: list[np.ndarray] = []

    def counting(placements: np.ndarray) -> np.ndarray:
        batches.append(np.array(placements))
        return np.asarray(evaluate(placements))

    return counting, batches


def _assert_equal(actual: Progress, expected: Progress) -> None:
    def plain(leaf):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(plain(a), plain(e))


@functools.cache
def _colocrl(make: Callable[..., Learner]) -> tuple[Policy, Learner]:
    policy = colocrl.make(num_devices=2, hidden_size=16)
    settings = Settings(num_samples=BATCH, learning_rate=1e-2, entropy_weight=0.8)
    return policy, make(policy, settings)


@pytest.mark.slow
@ALGORITHMS
@pytest.mark.parametrize(
    ("graph", "costs", "objective"),
    [
        (DIAMOND, 3, "serial"),
        (DIAMOND, 3, "makespan"),
        (FORK_JOIN, 5, "makespan"),
    ],
    ids=["diamond-serial", "diamond-makespan", "fork-makespan"],
)
def test_a_policy_learns_the_optimum(make, graph, costs, objective):
    """Not only is the optimum met on the way: the policy ends up preferring it."""
    evaluate = _problem(graph, costs, objective).evaluate
    policy, learner = _colocrl(make)
    best_s, single_s = _optimum(graph, evaluate)
    assert best_s < 0.95 * single_s
    progress = _start(evaluate, graph, learner)
    batched = helpers.batched(graph)
    *_, last = trainer.search(learner, batched, evaluate, progress, 2 + 300 * BATCH)
    assert last.progress.best_s == best_s
    untrained, learned = (
        helpers.preferred_placement(policy, found.state.params, batched)[None, : graph.num_ops]
        for found in (progress, last.progress)
    )
    assert float(evaluate(learned)[0]) == best_s < float(evaluate(untrained)[0])


@pytest.mark.parametrize("budget", [3, 2 + BATCH, 2 + 3 * BATCH, 2 + 3 * BATCH + 5])
def test_the_budget_is_spent_exactly(budget):
    evaluate, batches = _count_calls(_evaluator(DIAMOND))
    reports = _run(evaluate, budget)
    assert sum(map(len, batches)) == reports[-1].progress.evaluations == budget
    assert [report.progress.step for report in reports] == list(range(1, len(reports) + 1))


def test_a_spent_budget_runs_no_step():
    assert _run(_evaluator(DIAMOND), budget=2) == []


@pytest.mark.slow
def test_a_step_cut_short_is_evaluated_but_not_learned_from():
    reports = _run(_evaluator(DIAMOND), 2 + BATCH + 5)
    full, cut = reports
    np.testing.assert_array_equal(full.progress.state.params, cut.progress.state.params)
    assert "loss" in full.records[0]
    assert "loss" not in cut.records[0]


def test_resuming_midway_equals_going_through():
    evaluate = _evaluator(DIAMOND)
    uninterrupted = _run(evaluate, 2 + 6 * BATCH)
    resumed = _run(evaluate, 2 + 6 * BATCH, uninterrupted[2].progress)
    assert len(resumed) == 3
    _assert_equal(resumed[-1].progress, uninterrupted[-1].progress)
    assert resumed[-1].records == uninterrupted[-1].records


def test_seeds_decide_the_search():
    evaluate = _evaluator(DIAMOND)
    same, other = _start(evaluate, seed=0), _start(evaluate, seed=1)
    first = _run(evaluate, 2 + 3 * BATCH)[-1].progress
    _assert_equal(_run(evaluate, 2 + 3 * BATCH, same)[-1].progress, first)
    different = _run(evaluate, 2 + 3 * BATCH, other)[-1].progress
    assert (different.state.params != first.state.params).any()


def test_the_search_starts_from_the_best_single_device_and_never_gets_worse():
    for seed in range(5):
        evaluate = _evaluator(DIAMOND, seed)
        _, single_s = _optimum(DIAMOND, evaluate)
        start = _start(evaluate)
        assert start.best_s == start.reference_s == single_s
        assert start.evaluations == 2
        assert start.found_at in (1, 2)
        best = [single_s, *(r.progress.best_s for r in _run(evaluate, 2 + 5 * BATCH, start))]
        assert best == sorted(best, reverse=True)


def test_the_best_is_a_placement_that_was_evaluated_where_it_says():
    for seed in range(5):
        evaluate, batches = _count_calls(_evaluator(DIAMOND, seed))
        last = _run(evaluate, 2 + 5 * BATCH)[-1].progress
        evaluated = np.concatenate(batches)
        values = np.asarray(evaluate(evaluated))
        assert last.best_s == values.min()
        assert last.found_at == values.argmin() + 1
        np.testing.assert_array_equal(last.elite[0], evaluated[values.argmin()])


def test_the_elite_is_the_fastest_distinct_placements():
    for seed in range(5):
        evaluate, batches = _count_calls(_evaluator(DIAMOND, seed))
        last = _run(evaluate, 2 + 5 * BATCH)[-1].progress
        distinct = np.unique(np.concatenate(batches), axis=0)
        fastest_s = np.sort(np.asarray(evaluate(distinct)))[: len(last.elite)]
        assert last.elite_s.tolist() == fastest_s.tolist()
        assert np.asarray(evaluate(last.elite)).tolist() == last.elite_s.tolist()
        assert len(np.unique(last.elite, axis=0)) == len(last.elite)


def test_among_equals_the_earliest_stays():
    evaluate, batches = _count_calls(lambda placements: np.full(len(placements), 7.0, np.float32))
    last = _run(evaluate, 2 + 3 * BATCH)[-1].progress
    assert last.found_at == 1
    evaluated = np.concatenate(batches)
    _, first = np.unique(evaluated, axis=0, return_index=True)
    np.testing.assert_array_equal(last.elite, evaluated[np.sort(first)[: len(last.elite)]])


def test_the_single_devices_may_be_forgotten_but_not_their_unit():
    evaluate = _evaluator(DIAMOND)
    start = trainer.start(
        _learner(), jax.random.key(0), helpers.batched(DIAMOND), evaluate, 4, 2,
        keep_single_devices=False,
    )  # fmt: skip
    assert start.best_s == np.inf
    assert start.reference_s == _optimum(DIAMOND, evaluate)[1]
    assert start.evaluations == 2


@pytest.mark.parametrize("runs", ["some", "none"])
def test_failures_are_survived(runs):
    """Neither single device runs; of the others those that run put op0 on device 1, or none do."""
    evaluate_all = _evaluator(DIAMOND)

    def evaluate(placements: np.ndarray) -> np.ndarray:
        ran = (np.asarray(placements)[:, 0] == 1) & (np.asarray(placements)[:, 3] == 0)
        return np.where(ran & (runs == "some"), evaluate_all(placements), np.inf).astype(np.float32)

    start = _start(evaluate)
    assert start.best_s == np.inf
    assert np.isfinite(start.reference_s)
    last = _run(evaluate, 2 + 6 * BATCH, start)[-1]
    assert np.isfinite(last.progress.state.params).all()
    assert np.isfinite(last.records[0]["loss"])
    assert np.isfinite(last.progress.best_s) == (runs == "some")
    assert last.progress.evaluations == 2 + 6 * BATCH


def test_nothing_compiles_after_the_first_step():
    settings = Settings(num_samples=BATCH + 1)  # a size that no other test compiles for
    learner = reinforce.make_learner(helpers.independent_policy(), settings)
    evaluate, graph = _evaluator(DIAMOND), helpers.batched(DIAMOND)
    progress = _start(evaluate, learner=learner)
    reports = trainer.search(learner, graph, evaluate, progress, 2 + 6 * (BATCH + 1))
    with helpers.count_compilations() as compiled:
        next(reports)
    assert len(compiled) >= 2
    with helpers.count_compilations() as compiled:
        assert len(list(reports)) == 5
    assert compiled == []


@pytest.mark.slow
@ALGORITHMS
@pytest.mark.parametrize("objective", ["serial", "makespan"])
def test_in_the_simulator_the_steps_are_those_of_the_host(make, objective):
    problem, learner = _problem(FORK_JOIN, 11, objective), _learner(make)
    evaluate, batched = problem.evaluate, helpers.batched(FORK_JOIN)
    start, budget = _start(evaluate, FORK_JOIN, learner), 2 + 10 * BATCH + 5
    host = list(trainer.search(learner, batched, evaluate, start, budget))
    compiled = _simulated(problem, budget, start, learner=learner)
    for actual, expected in zip(_records(compiled), _records(host), strict=True):
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
    for actual, expected in zip(_latencies_s(compiled), _latencies_s(host), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert [len(each) for each in _latencies_s(compiled)] == [BATCH] * 10 + [5]
    actual, expected = compiled[-1].progress, host[-1].progress
    np.testing.assert_allclose(actual.state.params, expected.state.params, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(actual.elite[0], expected.elite[0])
    assert actual.found_at == expected.found_at
    assert jax.random.key_data(actual.state.key).tolist() == (
        jax.random.key_data(expected.state.key).tolist()
    )


@pytest.mark.slow
@ALGORITHMS
def test_with_limited_memory_too_the_steps_are_those_of_the_host(make):
    problem, learner = _tight(), _learner(make)
    evaluate, batched = problem.evaluate, helpers.batched(FORK_JOIN)
    penalised = problem.evaluate_penalised
    start, budget = _start(evaluate, FORK_JOIN, learner), 2 + 10 * BATCH
    search = functools.partial(trainer.search, learner, batched, evaluate, start, budget)
    host, compiled = (
        list(search(penalised=penalised)),
        _simulated(problem, budget, start, learner=learner),
    )
    for actual, expected in zip(_records(compiled), _records(host), strict=True):
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert all(len(ran) < BATCH for ran in _latencies_s(host))
    actual, expected = (reports[-1].progress for reports in (compiled, host))
    np.testing.assert_allclose(actual.state.params, expected.state.params, rtol=1e-4, atol=1e-5)
    # Without penalised latencies the search learns less and takes other steps.
    *_, unpenalised = search()
    assert np.abs(unpenalised.progress.state.params - expected.state.params).max() > 0.01


@pytest.mark.slow
def test_in_the_simulator_the_steps_of_an_episode_are_those_of_the_host():
    learner = reinforce.make_learner(
        helpers.episodic_policy(3), Settings(num_samples=4, reward="inverse")
    )
    problem, batched = _problem(DIAMOND), helpers.batched(DIAMOND)
    evaluate = problem.evaluate
    start, budget = _start(evaluate, learner=learner), 2 + 3 * 12 + 5
    host = list(trainer.search(learner, batched, evaluate, start, budget))
    compiled = _simulated(problem, budget, start, learner=learner)
    for actual, expected in zip(_records(compiled), _records(host), strict=True):
        assert actual == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert compiled[-1].progress.found_at == host[-1].progress.found_at


@pytest.mark.parametrize("budget", [3, 2 + BATCH, 2 + 4 * BATCH, 2 + 5 * BATCH + 5])
def test_in_the_simulator_the_budget_is_spent_exactly(budget):
    reports = _simulated(_problem(DIAMOND), budget)
    records = _records(reports)
    assert reports[-1].progress.evaluations == records[-1]["evaluations"] == budget
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    assert reports[-1].progress.step == len(records)
    assert ("loss" in records[-1]) == ((budget - 2) % BATCH == 0)


def test_in_the_simulator_a_spent_budget_runs_no_step():
    assert _simulated(_problem(DIAMOND), budget=2) == []


@pytest.mark.slow
@ALGORITHMS
@pytest.mark.parametrize("stop", [4, 7])
def test_in_the_simulator_resuming_equals_going_through(make, stop):
    """Wherever the chunks of 4 steps end."""
    problem, learner, budget = _problem(DIAMOND), _learner(make), 2 + 10 * BATCH
    uninterrupted = _simulated(problem, budget, learner=learner)
    interrupted = _simulated(problem, 2 + stop * BATCH, learner=learner)
    resumed = _simulated(problem, budget, interrupted[-1].progress, learner=learner)
    _assert_equal(resumed[-1].progress, uninterrupted[-1].progress)
    assert _records(interrupted) + _records(resumed) == _records(uninterrupted)


@pytest.mark.slow
@ALGORITHMS
@pytest.mark.parametrize("objective", ["serial", "makespan"])
def test_in_the_simulator_the_optimum_is_found_and_remembered(make, objective):
    problem = _problem(FORK_JOIN, 11, objective)
    evaluate = problem.evaluate
    last = _simulated(problem, 2 + 100 * BATCH, learner=_learner(make))[-1].progress
    assert last.best_s == _optimum(FORK_JOIN, evaluate)[0]
    assert np.asarray(evaluate(last.elite)).tolist() == last.elite_s.tolist()
    assert last.elite_s.tolist() == sorted(last.elite_s)
    assert len(np.unique(last.elite, axis=0)) == len(last.elite)


def test_in_the_simulator_only_what_fits_is_remembered_but_the_excess_is_learned_from():
    problem = _tight()
    evaluate = problem.evaluate
    start = _start(evaluate, FORK_JOIN)
    assert start.best_s == np.inf
    reports = _simulated(problem, 2 + 100 * BATCH, start)
    last = reports[-1].progress
    assert last.best_s == _optimum(FORK_JOIN, evaluate)[0]
    assert last.elite.sum(axis=1).tolist() == [FORK_JOIN.num_ops / 2] * len(last.elite)


def test_reports_have_the_latencies_of_feasible_placements():
    evaluate_all = _evaluator(DIAMOND)

    def evaluate(placements: np.ndarray) -> np.ndarray:
        return np.where(np.asarray(placements)[:, 0] == 1, evaluate_all(placements), np.inf)

    counting, batches = _count_calls(evaluate)
    reports = _run(counting, 2 + 3 * BATCH)
    for (latencies_s,), placements in zip(
        (r.latencies_s for r in reports), batches[1:], strict=True
    ):
        values_s = np.asarray(evaluate(placements), np.float32)
        assert latencies_s.tolist() == values_s[np.isfinite(values_s)].tolist()
        assert 0 < len(latencies_s) < BATCH


def test_a_steps_mean_is_over_the_last_placements_of_its_episodes():
    learner = reinforce.make_learner(
        helpers.episodic_policy(3), Settings(num_samples=4, reward="inverse")
    )
    evaluate = _problem(DIAMOND).evaluate
    counting, batches = _count_calls(evaluate)
    start = _start(evaluate, learner=learner)
    reports = list(trainer.search(learner, helpers.batched(DIAMOND), counting, start, 2 + 12 + 7))
    for (record,), placements in zip((r.records for r in reports), batches, strict=True):
        ends = placements[2::3]
        assert len(ends) == len(placements) // 3
        assert record["mean_s"] == pytest.approx(float(np.mean(evaluate(ends))), rel=1e-5)


ASSIGNMENT = np.arange(FORK_JOIN.num_ops)
ASSIGNMENT[[3, 5]] = [1, 2]


def test_in_the_simulator_the_pace_decides_the_reports_and_not_the_steps():
    problem, learner = _problem(FORK_JOIN, 11), _learner()
    evaluate, batched = problem.evaluate, helpers.batched(FORK_JOIN)
    start, budget = _start(evaluate, FORK_JOIN), 2 + 10 * BATCH + 5
    paces = iter([0, 2, 9, 1, 1, 1, 1])
    paced = list(
        trainer.search_simulated(
            learner,
            batched,
            trainer.Simulator.from_problem(problem),
            start,
            budget,
            chunk=4,
            pace=lambda: next(paces),
        )
    )
    assert [len(report.records) for report in paced] == [1, 2, 4, 1, 1, 1, 1]
    plain = _simulated(problem, budget, start, learner=learner)
    _assert_equal(paced[-1].progress._replace(state=None), plain[-1].progress._replace(state=None))


def test_on_the_host_operations_follow_those_that_place_them():
    evaluate, batches = _count_calls(_problem(FORK_JOIN, 11).evaluate)
    start, batched = _start(evaluate, FORK_JOIN), helpers.batched(FORK_JOIN)
    steps = trainer.search(
        _learner(), batched, evaluate, start, 2 + 4 * BATCH, assignment=ASSIGNMENT
    )
    *_, last = steps
    placements = np.concatenate(batches)
    np.testing.assert_array_equal(placements, placements[:, ASSIGNMENT])
    assert len(np.unique(placements, axis=0)) > 10
    np.testing.assert_array_equal(last.progress.elite, last.progress.elite[:, ASSIGNMENT])


def test_in_the_simulator_co_located_operations_follow_the_first():
    problem, learner, first = _problem(FORK_JOIN, 11), _learner(), ASSIGNMENT
    simulator = trainer.Simulator.from_problem(problem, first)
    lifted = helpers.all_placements(FORK_JOIN.num_ops, 2)[:, first]
    evaluate = problem.evaluate
    start, batched = _start(evaluate, FORK_JOIN), helpers.batched(FORK_JOIN)
    *_, last = trainer.search_simulated(
        learner, batched, simulator, start, 2 + 100 * BATCH, chunk=4
    )
    assert last.progress.best_s == np.min(evaluate(lifted)) > _optimum(FORK_JOIN, evaluate)[0]
    np.testing.assert_array_equal(last.progress.elite, last.progress.elite[:, first])


def test_in_the_simulator_nothing_compiles_after_the_first_chunk():
    settings = Settings(num_samples=BATCH + 2)  # a size that no other test compiles for
    learner = ppo.make_learner(helpers.independent_policy(), settings)
    problem, graph = _problem(DIAMOND), helpers.batched(DIAMOND)
    simulator = trainer.Simulator.from_problem(problem)
    progress = _start(problem.evaluate, learner=learner)

    def search(budget: int) -> list[trainer.Report]:
        return list(trainer.search_simulated(learner, graph, simulator, progress, budget, chunk=3))

    with helpers.count_compilations() as compiled:
        search(3 * (BATCH + 2))
    assert sum("steps" in name for name in compiled) == 1
    with helpers.count_compilations() as compiled:
        assert len(search(2 + 7 * (BATCH + 2) + 1)) == 3
    assert compiled == []
