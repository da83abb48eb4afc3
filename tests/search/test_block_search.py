import jax
import numpy as np
import pytest

from placement import simulators
from placement.instance import Instance
from placement.search import block_search
from tests import helpers

NUM_CHAINS = 4
NUM_STARTS = 9  # in every call, so that all share one compilation
_start_search = jax.jit(block_search.start, static_argnums=(0, 4))
_kind_probabilities = jax.jit(block_search.kind_probabilities)


def _start(
    problem: Instance, starts: np.ndarray, count: int
) -> tuple[block_search.SearchSpace, block_search.SearchState]:
    simulate = simulators.get_objective(problem.objective).simulate_columns
    space, key = block_search.make_space(problem, 0), jax.random.key(0)
    rows = np.resize(starts, (NUM_STARTS, starts.shape[1]))
    return _start_search(simulate, space, rows.T, count, NUM_CHAINS, key)


def _starts(problem: Instance, count: int) -> np.ndarray:
    """Returns placements int32 [M, N] on devices that run their operations."""
    allowed = problem.classes.allowed
    rng = np.random.default_rng(0)
    rows = [[rng.choice(np.flatnonzero(row)) for row in allowed] for _ in range(count)]
    return np.array(rows, np.int32)


def test_chains_start_at_the_best_starts_without_the_padding():
    problem = helpers.random_problem()
    starts = _starts(problem, NUM_STARTS)
    latency_s = np.asarray(problem.evaluate(starts))
    for count in (2, 6):
        _, state = _start(problem, starts, count)
        order = np.argsort(latency_s[:count], kind="stable")[np.arange(NUM_CHAINS) % count]
        np.testing.assert_array_equal(np.asarray(state.chains.placements).T, starts[order])
        np.testing.assert_array_equal(state.chains.costs_s, latency_s[order])
        np.testing.assert_array_equal(state.chains.best_placement, starts[order[0]])
        assert float(state.chains.best_latency_s) == latency_s[order[0]]


def test_the_penalty_is_the_slowest_starts_latency():
    problem = helpers.random_problem()
    starts = _starts(problem, 3)
    longest_s = float(np.max(problem.evaluate(starts)))
    space, _ = _start(problem, starts, 3)
    assert float(space.penalty_s) == longest_s


def test_kinds_of_orders_are_drawn_by_their_improvements():
    problem = helpers.random_problem()
    space, state = _start(problem, _starts(problem, 1), 1)
    even = np.asarray(_kind_probabilities(space, state.chains))
    is_available = np.asarray(space.orders.num_orders) > 0
    np.testing.assert_allclose(even, is_available / is_available.sum(), rtol=1e-6)
    chains = state.chains._replace(move_credit=np.float32([0.3, 0.0, 0.0, 0.0]))
    probabilities = np.asarray(_kind_probabilities(space, chains))
    assert probabilities.sum() == pytest.approx(1)
    assert probabilities[0] > 0.8
    assert probabilities[is_available].min() > 0.05
