import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement import simulators
from placement.learning import reinforce, trainer
from placement.learning.reinforce import Learner, Settings
from placement.learning.trainer import Progress
from placement.policies import hsdag
from placement.types import Evaluate, OpGraph, Problem
from tests import helpers

pytestmark = pytest.mark.usefixtures("quick_compilation")

DIAMOND, FORK_JOIN = helpers.diamond(), helpers.fork_join(branches=3, length=2)
BATCH = 16


def _evaluator(graph: OpGraph, seed: int = 3) -> Evaluate:
    costs = helpers.random_costs(np.random.default_rng(seed), graph, 2)
    return simulators.evaluator(Problem(graph, costs, "serial", ("a", "b")))


def _optimum(graph: OpGraph, evaluate: Evaluate) -> tuple[float, float]:
    """The least latency of all placements, and that of the best single device."""
    values = np.asarray(evaluate(helpers.all_placements(graph.num_ops, 2)))
    return float(values.min()), float(values[[0, -1]].min())


@functools.cache
def _learner(learning_rate: float = 0.1) -> Learner:
    settings = Settings(num_samples=BATCH, learning_rate=learning_rate)
    return reinforce.make(helpers.independent_policy(), settings)


def _start(evaluate: Evaluate, graph: OpGraph = DIAMOND, learner: Learner | None = None, seed=0):
    return trainer.start(
        learner or _learner(), jax.random.key(seed), helpers.batched(graph), evaluate,
        graph.num_ops, 2,
    )  # fmt: skip


def _run(evaluate: Evaluate, budget: int, progress: Progress | None = None) -> list[trainer.Report]:
    progress = _start(evaluate) if progress is None else progress
    return list(trainer.search(_learner(), helpers.batched(DIAMOND), evaluate, progress, budget))


def _counting(evaluate: Evaluate) -> tuple[Evaluate, list[np.ndarray]]:
    """The same evaluation, and a list that gains every batch of placements it is given."""
    seen: list[np.ndarray] = []

    def counted(placements: np.ndarray) -> np.ndarray:
        seen.append(np.array(placements))
        return np.asarray(evaluate(placements))

    return counted, seen


def _assert_equal(actual: Progress, expected: Progress) -> None:
    def plain(leaf):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(plain(a), plain(e))


@functools.cache
def _hsdag() -> tuple[Callable, Learner]:
    policy = hsdag.make(num_devices=2, hidden_size=16)
    settings = Settings(num_samples=BATCH, learning_rate=1e-2, entropy_weight=0.3)
    return jax.jit(policy.greedy), reinforce.make(policy, settings)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("graph", "costs"), [(DIAMOND, 3), (FORK_JOIN, 11)], ids=["diamond", "fork"]
)
def test_hsdag_learns_the_optimum(graph, costs, seed):
    """Not only is the optimum met on the way: the policy ends up preferring it."""
    evaluate, (greedy, learner) = _evaluator(graph, costs), _hsdag()
    best_s, single_s = _optimum(graph, evaluate)
    assert best_s < 0.95 * single_s
    progress = _start(evaluate, graph, learner, seed)
    batched = helpers.batched(graph)
    *_, last = trainer.search(learner, batched, evaluate, progress, 2 + 300 * BATCH)
    assert last.progress.best_s == best_s
    learned = greedy(last.progress.state.params, batched)[None, : graph.num_ops]
    assert float(evaluate(learned)[0]) == best_s


@pytest.mark.parametrize("budget", [3, 2 + BATCH, 2 + 3 * BATCH, 2 + 3 * BATCH + 5])
def test_the_budget_is_spent_exactly(budget):
    evaluate, seen = _counting(_evaluator(DIAMOND))
    reports = _run(evaluate, budget)
    assert sum(map(len, seen)) == reports[-1].progress.evaluations == budget
    assert [report.progress.step for report in reports] == list(range(1, len(reports) + 1))


def test_a_spent_budget_runs_no_step():
    assert _run(_evaluator(DIAMOND), budget=2) == []


def test_a_step_cut_short_is_evaluated_but_not_learned_from():
    reports = _run(_evaluator(DIAMOND), 2 + BATCH + 5)
    full, cut = reports
    np.testing.assert_array_equal(full.progress.state.params, cut.progress.state.params)
    assert "loss" in full.metrics
    assert "loss" not in cut.metrics


def test_resuming_midway_equals_going_through():
    evaluate = _evaluator(DIAMOND)
    through = _run(evaluate, 2 + 6 * BATCH)
    resumed = _run(evaluate, 2 + 6 * BATCH, through[2].progress)
    assert len(resumed) == 3
    _assert_equal(resumed[-1].progress, through[-1].progress)
    assert resumed[-1].metrics == through[-1].metrics


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
        evaluate, seen = _counting(_evaluator(DIAMOND, seed))
        last = _run(evaluate, 2 + 5 * BATCH)[-1].progress
        evaluated = np.concatenate(seen)
        values = np.asarray(evaluate(evaluated))
        assert last.best_s == values.min()
        assert last.found_at == values.argmin() + 1
        np.testing.assert_array_equal(last.elite[0], evaluated[values.argmin()])


def test_the_elite_is_the_fastest_distinct_placements():
    for seed in range(5):
        evaluate, seen = _counting(_evaluator(DIAMOND, seed))
        last = _run(evaluate, 2 + 5 * BATCH)[-1].progress
        distinct = np.unique(np.concatenate(seen), axis=0)
        fastest_s = np.sort(np.asarray(evaluate(distinct)))[: len(last.elite)]
        assert last.elite_s.tolist() == fastest_s.tolist()
        assert np.asarray(evaluate(last.elite)).tolist() == last.elite_s.tolist()
        assert len(np.unique(last.elite, axis=0)) == len(last.elite)


def test_among_equals_the_earliest_stays():
    evaluate, seen = _counting(lambda placements: np.full(len(placements), 7.0, np.float32))
    last = _run(evaluate, 2 + 3 * BATCH)[-1].progress
    assert last.found_at == 1
    evaluated = np.concatenate(seen)
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
    inner = _evaluator(DIAMOND)

    def evaluate(placements: np.ndarray) -> np.ndarray:
        ran = (np.asarray(placements)[:, 0] == 1) & (np.asarray(placements)[:, 3] == 0)
        return np.where(ran & (runs == "some"), inner(placements), np.inf).astype(np.float32)

    start = _start(evaluate)
    assert start.best_s == np.inf
    assert np.isfinite(start.reference_s)
    last = _run(evaluate, 2 + 6 * BATCH, start)[-1]
    assert np.isfinite(last.progress.state.params).all()
    assert np.isfinite(last.metrics["loss"])
    assert np.isfinite(last.progress.best_s) == (runs == "some")
    assert last.progress.evaluations == 2 + 6 * BATCH


def test_nothing_compiles_after_the_first_step():
    settings = Settings(num_samples=BATCH + 1)  # a size that no other test compiles for
    learner = reinforce.make(helpers.independent_policy(), settings)
    evaluate, graph = _evaluator(DIAMOND), helpers.batched(DIAMOND)
    progress = _start(evaluate, learner=learner)
    reports = trainer.search(learner, graph, evaluate, progress, 2 + 6 * (BATCH + 1))
    with helpers.count_compilations() as compiled:
        next(reports)
    assert len(compiled) >= 2
    with helpers.count_compilations() as compiled:
        assert len(list(reports)) == 5
    assert compiled == []
