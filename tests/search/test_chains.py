import jax
import numpy as np
import pytest

from placement import simulators
from placement.instance import Instance
from placement.search import chains, orders
from tests import helpers

NUM_CHAINS = 4
NUM_STARTS = 9  # in every call, so that all share one compilation
_begin = jax.jit(chains.begin, static_argnums=(0, 4))
_share = jax.jit(chains.share)


def _space(problem: Instance) -> chains.Space:
    classes = problem.classes
    limits, of_objective = problem.tables
    return chains.Space(
        tables=(limits._replace(representative=None), of_objective),
        number=None,
        allowed=classes.allowed,
        memory_bytes=classes.memory_bytes.astype(np.float32),
        excess_s=np.zeros((), np.float32),
        orders=orders.make(problem, np.random.default_rng(0)),
    )


def _begun(problem: Instance, starts: np.ndarray, count: int) -> tuple[chains.Space, chains.State]:
    simulate = simulators.objective(problem.objective).simulate_columns
    space, key = _space(problem), jax.random.key(0)
    rows = np.resize(starts, (NUM_STARTS, starts.shape[1]))
    return _begin(simulate, space, rows.T, count, NUM_CHAINS, key)


def _starts(problem: Instance, count: int) -> np.ndarray:
    """Placements int32 [M, N] on devices that run their operations."""
    allowed = problem.classes.allowed
    rng = np.random.default_rng(0)
    rows = [[rng.choice(np.flatnonzero(able)) for able in allowed] for _ in range(count)]
    return np.array(rows, np.int32)


def test_chains_begin_at_the_best_starts_that_are_meant():
    problem = helpers.random_problem()
    starts = _starts(problem, NUM_STARTS)
    latency_s = np.asarray(problem.evaluate(starts))
    for count in (2, 6):
        _, state = _begun(problem, starts, count)
        by = np.argsort(latency_s[:count], kind="stable")[np.arange(NUM_CHAINS) % count]
        np.testing.assert_array_equal(np.asarray(state.at).T, starts[by])
        np.testing.assert_array_equal(state.at_s, latency_s[by])
        np.testing.assert_array_equal(state.best, starts[by[0]])
        assert float(state.best_s) == latency_s[by[0]]


def test_a_space_keeps_an_excess_that_is_more_than_its_starts_take():
    problem = helpers.random_problem()
    starts = _starts(problem, 3)
    longest_s = float(np.max(problem.evaluate(starts)))
    space, _ = _begun(problem, starts, 3)
    assert float(space.excess_s) == longest_s


def test_kinds_of_orders_are_drawn_by_what_they_gained():
    problem = helpers.random_problem()
    space, state = _begun(problem, _starts(problem, 1), 1)
    even = np.asarray(_share(space, state))
    there = np.asarray(space.orders.number) > 0
    np.testing.assert_allclose(even, there / there.sum(), rtol=1e-6)
    gained = state._replace(gained=np.float32([0.3, 0.0, 0.0, 0.0]))
    share = np.asarray(_share(space, gained))
    assert share.sum() == pytest.approx(1)
    assert share[0] > 0.8
    assert share[there].min() > 0.05
