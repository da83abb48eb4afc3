"""The training loop in the simulator and on devices: budget, incumbents, reports, resumption."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.instance import Instance
from placement.learning import ppo, reinforce, trainer
from placement.learning.base import Learner, Settings
from placement.learning.trainer import Progress, Report
from placement.policies import colocrl
from placement.types import Evaluate, OpGraph
from tests import helpers

DIAMOND, FORK_JOIN = helpers.diamond(), helpers.fork_join(branches=3, length=2)
BATCH = 16
MODES = pytest.mark.parametrize("on_host", [False, True], ids=["simulator", "devices"])


def _problem(graph: OpGraph = DIAMOND, seed: int = 3, objective: str = "serial") -> Instance:
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


def _optimum(problem: Instance) -> tuple[float, float]:
    """Returns the least latency of all placements and that of the best single device."""
    values = np.asarray(problem.evaluate(helpers.all_placements(problem.graph.num_ops, 2)))
    return float(values.min()), float(values[[0, -1]].min())


@functools.cache
def _learner(make: Callable[..., Learner] = reinforce.make_learner) -> Learner:
    return make(helpers.independent_policy(), Settings(num_samples=BATCH, learning_rate=0.1))


def _start(problem: Instance, learner: Learner | None = None, seed=0, evaluate=None) -> Progress:
    return trainer.start(
        learner or _learner(), jax.random.key(seed), helpers.batched(problem.graph),
        evaluate or problem.evaluate, problem.graph.num_ops, 2,
    )  # fmt: skip


def _run(
    problem: Instance,
    budget: int,
    progress: Progress | None = None,
    *,
    learner: Learner | None = None,
    evaluate: Evaluate | None = None,
    assignment: np.ndarray | None = None,
    **options,
) -> list[Report]:
    """Returns the reports after the first, which has no steps."""
    learner = learner or _learner()
    progress = progress or _start(problem, learner)
    simulator = trainer.Simulator.from_problem(problem, assignment)
    first, *reports = trainer.search(
        learner, helpers.batched(problem.graph), simulator, progress, budget, evaluate=evaluate,
        **options,
    )  # fmt: skip
    assert first.records == ()
    _assert_equal(first.progress, progress)
    return reports


def _records(reports: list[Report]) -> list[dict[str, float]]:
    return [record for report in reports for record in report.records]


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "graph", "costs", "objective"),
    [
        (reinforce.make_learner, DIAMOND, 3, "serial"),
        (ppo.make_learner, FORK_JOIN, 5, "makespan"),
    ],
)
def test_policy_learns_optimum(make, graph, costs, objective):
    """Not only is the optimum met on the way: the policy ends up preferring it."""
    problem = _problem(graph, costs, objective)
    policy = colocrl.make(num_devices=2, hidden_size=16)
    learner = make(policy, Settings(num_samples=BATCH, learning_rate=1e-2, entropy_weight=0.8))
    best_s, single_s = _optimum(problem)
    assert best_s < 0.95 * single_s
    progress, batched = _start(problem, learner), helpers.batched(graph)
    *_, last = _run(problem, 2 + 300 * BATCH, progress, learner=learner)
    assert last.progress.best_s == best_s
    untrained, learned = (
        helpers.preferred_placement(policy, found.state.params, batched)[None, : graph.num_ops]
        for found in (progress, last.progress)
    )
    assert float(problem.evaluate(learned)[0]) == best_s < float(problem.evaluate(untrained)[0])


@MODES
@pytest.mark.parametrize("budget", [2, 3, 2 + BATCH, 2 + 3 * BATCH + 5])
def test_budget_is_spent_exactly(budget, on_host):
    problem = _problem()
    evaluate, batches = _count_calls(problem.evaluate)
    reports = _run(problem, budget, evaluate=evaluate if on_host else None)
    records = _records(reports)
    assert len(records) == -(-(budget - 2) // BATCH)
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    if records:
        assert reports[-1].progress.evaluations == records[-1]["evaluations"] == budget
        assert ("loss" in records[-1]) == ((budget - 2) % BATCH == 0)
    if on_host:
        assert sum(map(len, batches)) == budget - 2


@MODES
def test_resumed_search_equals_uninterrupted(on_host):
    problem = _problem()
    evaluate = problem.evaluate if on_host else None
    budget, end = 2 + 4 * BATCH, 2 + 9 * BATCH
    whole = _run(problem, end, evaluate=evaluate)
    interrupted = _run(problem, budget, evaluate=evaluate)
    resumed = _run(problem, end, interrupted[-1].progress, evaluate=evaluate)
    _assert_equal(resumed[-1].progress, whole[-1].progress)
    assert _records(interrupted) + _records(resumed) == _records(whole)


def test_seed_decides_search():
    problem = _problem()
    first, same, other = (
        _run(problem, 2 + 3 * BATCH, _start(problem, seed=seed))[-1].progress for seed in (0, 0, 1)
    )
    _assert_equal(first, same)
    assert (other.state.params != first.state.params).any()


@MODES
def test_incumbent_and_elite(on_host):
    for seed in range(3):
        problem = _problem(FORK_JOIN, seed, "makespan")
        start, single_s = _start(problem), _optimum(problem)[1]
        assert start.best_s == start.reference_s == single_s
        evaluate, batches = _count_calls(problem.evaluate)
        reports = _run(problem, 2 + 5 * BATCH, start, evaluate=evaluate if on_host else None)
        best = [single_s, *(record["best_s"] for record in _records(reports))]
        assert best == sorted(best, reverse=True)
        last = reports[-1].progress
        assert last.best_s == best[-1]
        known = last.elite[np.isfinite(last.elite_s)]
        assert np.asarray(problem.evaluate(known)).tolist() == last.elite_s[: len(known)].tolist()
        assert last.elite_s.tolist() == sorted(last.elite_s)
        assert len(np.unique(known, axis=0)) == len(known)
        if on_host:
            evaluated_s = problem.evaluate(np.concatenate(batches))
            assert last.best_s == min(start.best_s, np.min(evaluated_s))


def test_earliest_of_equals_stays():
    def evaluate(placements: np.ndarray) -> np.ndarray:
        return np.full(len(placements), 7.0, np.float32)

    problem = _problem()
    start = _start(problem, evaluate=evaluate)
    last = _run(problem, 2 + 3 * BATCH, start, evaluate=evaluate)[-1].progress
    assert last.elite[:2].tolist() == [[0] * 4, [1] * 4]


def test_released_search_ignores_single_devices():
    problem = _problem()
    start = trainer.start(
        _learner(), jax.random.key(0), helpers.batched(DIAMOND), problem.evaluate, 4, 2,
        keep_single_devices=False,
    )  # fmt: skip
    assert start.best_s == np.inf
    assert start.reference_s == _optimum(problem)[1]
    assert start.evaluations == 2
    reports = _run(problem, 2 + 20 * BATCH, start, fail_single_devices=True)
    latencies_s = np.concatenate([s for report in reports for s in report.latencies_s])
    assert set(latencies_s[latencies_s > 1e6].tolist()) == {1e10}
    assert len(np.unique(reports[-1].progress.elite[0])) == 2


@pytest.mark.parametrize("runs", ["some", "none"])
def test_search_survives_failures(runs):
    """Neither single device runs; of the others those that run put op0 on device 1, or none do."""
    problem = _problem()

    def evaluate(placements: np.ndarray) -> np.ndarray:
        ran = (np.asarray(placements)[:, 0] == 1) & (np.asarray(placements)[:, 3] == 0)
        return np.where(ran & (runs == "some"), problem.evaluate(placements), np.inf)

    start = _start(problem, evaluate=evaluate)
    assert start.best_s == np.inf
    assert np.isfinite(start.reference_s)
    counting, batches = _count_calls(evaluate)
    reports = _run(problem, 2 + 6 * BATCH, start, evaluate=counting)
    last = reports[-1]
    assert np.isfinite(last.progress.state.params).all()
    assert np.isfinite(last.records[0]["loss"])
    assert np.isfinite(last.progress.best_s) == (runs == "some")
    for report, placements in zip(reports, batches, strict=True):
        values_s = np.asarray(evaluate(placements), np.float32)
        assert report.latencies_s[0].tolist() == values_s[np.isfinite(values_s)].tolist()


def test_search_learns_from_excess_memory():
    """Only feasible placements are remembered."""
    problem = _tight()
    start = _start(problem)
    assert start.best_s == np.inf
    last = _run(problem, 2 + 100 * BATCH, start)[-1].progress
    assert last.best_s == _optimum(problem)[0]
    assert last.elite.sum(axis=1).tolist() == [FORK_JOIN.num_ops / 2] * len(last.elite)


@MODES
def test_mean_is_of_last_placements(on_host):
    learner = reinforce.make_learner(
        helpers.episodic_policy(3), Settings(num_samples=4, reward="inverse")
    )
    problem = _problem()
    counting, batches = _count_calls(problem.evaluate)
    reports = _run(problem, 2 + 12 + 7, learner=learner, evaluate=counting if on_host else None)
    means_s = [record["mean_s"] for record in _records(reports)]
    assert len(means_s) == 2
    if on_host:
        expected = [float(np.mean(problem.evaluate(p[2::3]))) for p in batches]
        assert means_s == pytest.approx(expected, rel=1e-5)


def test_pace_decides_reports_only():
    problem = _problem(FORK_JOIN, 11)
    budget, paces = 2 + 10 * BATCH + 5, iter([0, 2, 99, 1])
    paced = _run(problem, budget, pace=lambda: next(paces))
    assert [len(report.records) for report in paced] == [1, 2, 8]
    _assert_equal(paced[-1].progress, _run(problem, budget)[-1].progress)


@MODES
def test_operations_follow_their_node(on_host):
    problem, first = _problem(FORK_JOIN, 11), np.arange(FORK_JOIN.num_ops)
    first[[3, 5]] = [1, 2]
    lifted = helpers.all_placements(FORK_JOIN.num_ops, 2)[:, first]
    evaluate = problem.evaluate if on_host else None
    last = _run(problem, 2 + 100 * BATCH, evaluate=evaluate, assignment=first)[-1].progress
    assert last.best_s == np.min(problem.evaluate(lifted)) > _optimum(problem)[0]
    np.testing.assert_array_equal(last.elite, last.elite[:, first])


@MODES
def test_nothing_compiles_after_first_report(on_host):
    settings = Settings(num_samples=BATCH + 2)  # a size that no other test compiles for
    learner = ppo.make_learner(helpers.independent_policy(), settings)
    problem, graph = _problem(), helpers.batched(DIAMOND)
    evaluate = (lambda placements: np.ones(len(placements), np.float32)) if on_host else None
    simulator, progress = trainer.Simulator.from_problem(problem), _start(problem, learner)
    budget = 2 + 7 * (BATCH + 2) + 1
    steps = trainer.search(learner, graph, simulator, progress, budget, evaluate=evaluate)
    with helpers.count_compilations() as compiled:
        next(steps)
    assert compiled
    with helpers.count_compilations() as compiled:
        assert list(steps)[-1].progress.evaluations == budget
    assert compiled == []
