"""The training loop in the simulator and on devices: budget, incumbents, reports, resumption."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.learning import base, ppo, trainer
from placement.learning.base import Learner, Settings
from placement.learning.trainer import Progress, Report
from placement.policies.inputs import PolicyInput
from placement.problem import Problem
from placement.types import Evaluate, OpGraph
from tests import helpers

DIAMOND, FORK_JOIN = helpers.diamond(), helpers.fork_join(branches=3, length=2)
BATCH = 16
MODES = pytest.mark.parametrize("on_host", [False, True], ids=["simulator", "devices"])


def _problem(graph: OpGraph = DIAMOND, seed: int = 3, objective: str = "serial") -> Problem:
    costs = helpers.random_costs(np.random.default_rng(seed), graph, 2)
    return Problem(graph, costs, objective, ("a", "b"))


@functools.cache
def _learner() -> Learner:
    settings = Settings(num_samples=BATCH, learning_rate=0.1)
    return base.make_reinforce_learner(helpers.independent_policy(), settings)


def _start(
    problem: Problem, learner: Learner | None = None, seed=0, evaluate=None, **options
) -> Progress:
    policy_input = PolicyInput(helpers.batched(problem.graph), np.arange(problem.graph.num_ops))
    key, starts = jax.random.key(seed), helpers.single_starts(problem, evaluate)
    return trainer.start(learner or _learner(), key, policy_input, problem, starts, **options)


def _run(
    problem: Problem,
    budget: int,
    progress: Progress | None = None,
    *,
    learner: Learner | None = None,
    node: np.ndarray | None = None,
    **options,
) -> list[Report]:
    """Returns the reports after the first, which has no steps."""
    learner = learner or _learner()
    progress = progress or _start(problem, learner)
    node = np.arange(problem.graph.num_ops) if node is None else node
    policy_input = PolicyInput(helpers.batched(problem.graph), node)
    first, *reports = trainer.search(learner, policy_input, problem, progress, budget, **options)
    assert first.records == ()
    _assert_equal(first.progress, progress)
    return reports


def _records(reports: list[Report]) -> list[dict[str, float]]:
    return [record for report in reports for record in report.records]


def _record_batches(evaluate: Evaluate) -> tuple[Evaluate, list[np.ndarray]]:
    """Returns the same evaluation, and the list of all batches that it evaluates."""
    batches: list[np.ndarray] = []

    def recording(placements: np.ndarray) -> np.ndarray:
        batches.append(np.array(placements))
        return np.asarray(evaluate(placements))

    return recording, batches


def _assert_equal(actual: Progress, expected: Progress) -> None:
    def plain(leaf):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(plain(a), plain(e))


def test_budget_is_spent_exactly():
    problem = _problem()
    for budget in (3, 2 + BATCH, 2 + 3 * BATCH + 5):
        reports = _run(problem, budget)
        records = _records(reports)
        assert [record["step"] for record in records] == [*range(1, 1 - (2 - budget) // BATCH)]
        assert reports[-1].progress.evaluations == records[-1]["evaluations"] == budget
        # A step that is cut short is not learned from.
        assert ("loss" in records[-1]) == ((budget - 2) % BATCH == 0)


def test_devices_evaluate_promising_samples():
    problem, other = _problem(FORK_JOIN, 11), _problem(FORK_JOIN, 12)
    call_s, measured = [0.0], {single.tobytes() for single in problem.single_devices}

    def evaluate(placements: np.ndarray) -> np.ndarray:
        """Another problem's latencies, which grow with every call; at most eight are new."""
        new = [p for p in placements if p.tobytes() not in measured]
        counts.append(len(new))
        if len(counts) == 2:
            first_new.update(p.tobytes() for p in new)
        measured.update(p.tobytes() for p in new)
        call_s[0] += 1.0
        return np.asarray(other.evaluate(placements)) + np.float32(call_s[0])

    counts, first_new = list[int](), set[bytes]()
    start = _start(problem, evaluate=evaluate)
    reports = _run(problem, 60, start, evaluate=evaluate)
    assert counts[0] == 0
    assert counts[1] == trainer.PROMISING == max(counts)
    records, last = _records(reports), reports[-1].progress
    steps = np.maximum(counts[1:], 1)
    assert [record["evaluations"] for record in records] == (2 + np.cumsum(steps)).tolist()
    assert last.evaluations == 60
    assert all("loss" in record for record in records)
    rows = np.array([np.frombuffer(key, np.int32) for key in measured])
    best_s = np.asarray(other.evaluate(rows)).min() + call_s[0]
    assert last.best_s == pytest.approx(best_s)
    # The first step's are those that are predicted to be fastest.
    _, samples = _learner().sample(start.state, helpers.batched(FORK_JOIN))
    drawn = np.unique(np.asarray(samples.placement)[:, 0, : FORK_JOIN.num_ops], axis=0)
    new = np.array([p for p in drawn if len(np.unique(p)) == 2])
    fastest = new[np.argsort(problem.evaluate(new), kind="stable")[: trainer.PROMISING]]
    assert {p.tobytes() for p in fastest} == first_new


def test_resumed_search_equals_uninterrupted():
    problem = _problem()
    uninterrupted = _run(problem, 2 + 9 * BATCH)
    *_, last = _run(problem, 2 + 4 * BATCH)
    resumed = _run(problem, 2 + 9 * BATCH, last.progress)
    _assert_equal(resumed[-1].progress, uninterrupted[-1].progress)
    assert _records(resumed) == _records(uninterrupted)[4:]


def test_incumbent_and_elite():
    for seed in range(3):
        problem = _problem(FORK_JOIN, seed, "makespan")
        start, single_s = _start(problem), problem.evaluate(problem.single_devices).min()
        assert start.best_s == start.reference_s == single_s
        evaluate, batches = _record_batches(problem.evaluate)
        reports = _run(problem, 2 + 5 * BATCH, start, evaluate=evaluate)
        best_s = [single_s, *(record["best_s"] for record in _records(reports))]
        assert best_s == sorted(best_s, reverse=True)
        last = reports[-1].progress
        known = last.elite[np.isfinite(last.elite_s)]
        assert np.asarray(problem.evaluate(known)).tolist() == last.elite_s[: len(known)].tolist()
        assert last.elite_s.tolist() == sorted(last.elite_s)
        assert len(np.unique(known, axis=0)) == len(known)
        evaluated_s = problem.evaluate(np.concatenate(batches))
        assert last.best_s == best_s[-1] == min(single_s, np.min(evaluated_s))
        step_best_s = min(record["step_best_s"] for record in _records(reports))
        assert last.own_best_s == step_best_s == np.min(evaluated_s)


def test_released_search_ignores_single_devices():
    problem = _problem()
    start = _start(problem, keep_starts=False)
    assert start.best_s == np.inf
    assert start.reference_s == problem.evaluate(problem.single_devices).min()
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
    recording, batches = _record_batches(evaluate)
    reports = _run(problem, 2 + 6 * BATCH, start, evaluate=recording)
    last = reports[-1]
    assert np.isfinite(last.progress.state.params).all()
    assert np.isfinite(last.records[0]["loss"])
    assert np.isfinite(last.progress.best_s) == (runs == "some")
    for report, placements in zip(reports, batches, strict=True):
        values_s = np.asarray(evaluate(placements), np.float32)
        assert set(report.latencies_s[0].tolist()) <= set(values_s[np.isfinite(values_s)].tolist())


def test_search_learns_from_excess_memory():
    """Each device has memory for half of the operations; only what fits is remembered."""
    problem, half = _problem(FORK_JOIN, 11), FORK_JOIN.num_ops / 2
    costs = problem.costs._replace(
        memory_bytes=np.ones(FORK_JOIN.num_ops, np.float32),
        capacity_bytes=np.full(2, half, np.float32),
    )
    problem = problem._replace(costs=costs)
    start = _start(problem)
    assert start.best_s == np.inf
    last = _run(problem, 2 + 100 * BATCH, start)[-1].progress
    assert last.best_s == problem.evaluate(helpers.all_placements(FORK_JOIN.num_ops, 2)).min()
    assert last.elite.sum(axis=1).tolist() == [half] * len(last.elite)


def test_mean_is_of_last_placements():
    learner = base.make_reinforce_learner(
        helpers.episodic_policy(3), Settings(num_samples=4, reward="inverse")
    )
    problem = _problem()
    start = _start(problem, learner)
    (record,) = _records(_run(problem, 2 + 12, start, learner=learner))
    _, samples = learner.sample(start.state, helpers.batched(problem.graph))
    last = np.asarray(samples.placement)[:, -1, : problem.graph.num_ops]
    assert record["mean_s"] == pytest.approx(float(np.mean(problem.evaluate(last))), rel=1e-5)


def test_reports_come_every_second():
    """The first step, which is timed alone, takes a quarter of a second, later ones a minute."""
    problem, budget = _problem(FORK_JOIN, 11), 2 + 23 * BATCH + 5
    # Of the clock before the compilation, and before and after each chunk.
    times_s = iter([0, 100, 100.25, 101, 341, 343, 350, 360, 360, 370, 370, 380, 380])
    reports = _run(problem, budget, clock_s=lambda: next(times_s))
    assert [len(report.records) for report in reports] == [1, 4, 1, 1, 16, 1]
    _assert_equal(reports[-1].progress, _run(problem, budget)[-1].progress)


def test_operations_follow_their_node():
    problem, first = _problem(FORK_JOIN, 11), np.arange(FORK_JOIN.num_ops)
    first[[3, 5]] = [1, 2]
    rows = helpers.all_placements(FORK_JOIN.num_ops, 2)
    last = _run(problem, 2 + 100 * BATCH, node=first)[-1].progress
    assert last.best_s == problem.evaluate(rows[:, first]).min() > problem.evaluate(rows).min()
    np.testing.assert_array_equal(last.elite, last.elite[:, first])


@MODES
def test_nothing_compiles_after_first_report(on_host):
    settings = Settings(num_samples=BATCH + 2)  # a size that no other test compiles for
    learner = ppo.make_learner(helpers.independent_policy(), settings)
    problem, policy_input = _problem(), PolicyInput(helpers.batched(DIAMOND), np.arange(4))
    evaluate = (lambda placements: np.ones(len(placements), np.float32)) if on_host else None
    progress, budget = _start(problem, learner), 2 + 7 * (BATCH + 2) + 1
    steps = trainer.search(learner, policy_input, problem, progress, budget, evaluate=evaluate)
    with helpers.count_compilations() as compiled:
        next(steps)
    assert compiled
    with helpers.count_compilations() as compiled:
        assert list(steps)[-1].progress.evaluations == budget
    assert compiled == []
