"""The environment that moves groups."""

import jax
import numpy as np
import pytest

from placement.environments import arrays, move_group
from tests import helpers


def make_problem(*, colocated: float = 0.0, capacity_bytes: float = np.inf):
    rng = np.random.default_rng(0)
    graph = helpers.rewired(rng, helpers.random_dag_of_size(rng, 26, 41, 30), colocated=colocated)
    costs = helpers.random_costs(rng, graph, 3)
    costs = costs._replace(
        memory_bytes=np.ones(graph.num_ops, np.float32),
        capacity_bytes=np.array([np.inf, np.inf, capacity_bytes], np.float32),
        tensor_bytes=None,
    )
    return helpers.as_problem(graph, costs, "makespan")


def draw_actions(problem, count):
    rng = np.random.default_rng(1)
    members = rng.random((count, problem.num_padded_ops)) < 0.3
    return move_group.Action(members, rng.integers(0, 3, count).astype(np.int32))


@jax.jit
def play(problem, actions):
    def advance(state, action):
        result = move_group.step(state, action)
        return result.state, (result.reward, result.observation)

    start, _ = move_group.reset(jax.random.key(0), problem)
    return start, *jax.lax.scan(advance, start, actions)


def test_rewards_add_up_to_the_gain_and_the_best_placement_is_kept():
    problem = make_problem()
    start, state, (rewards, observations) = play(
        arrays.make_arrays(problem), draw_actions(problem, 20)
    )
    assert rewards.sum() == pytest.approx(float(start.value - state.value), abs=1e-5)
    assert state.best_value == pytest.approx(min(float(start.value), *observations.value.tolist()))
    unit_s = float(problem.evaluate(problem.single_devices).min())
    best = np.asarray(state.best_placement)[: problem.graph.num_ops]
    assert problem.value_s(best) / unit_s == pytest.approx(float(state.best_value), rel=1e-5)


def test_the_start_is_a_single_device():
    problem = make_problem()
    problem_arrays = arrays.make_arrays(problem)
    starts = [move_group.reset(jax.random.key(n), problem_arrays)[0] for n in range(8)]
    assert len({float(start.value) for start in starts}) > 1
    for start in starts:
        assert (start.placement == problem_arrays.single_devices).all(axis=1).any()


def test_co_located_operations_move_together():
    problem = make_problem(colocated=0.5)
    _, _, (_, observations) = play(arrays.make_arrays(problem), draw_actions(problem, 20))
    placements = np.asarray(observations.placement)[:, : problem.graph.num_ops]
    np.testing.assert_array_equal(placements, placements[:, problem.leaders])
    assert (placements[0] != placements[-1]).any()


def test_a_placement_that_exceeds_memory_is_worse_and_never_the_best():
    problem = make_problem(capacity_bytes=1.0)
    problem_arrays = arrays.make_arrays(problem)
    everything = np.ones((1, problem.num_padded_ops), bool)
    action = move_group.Action(everything, np.array([2], np.int32))
    start, state, (_, observations) = play(problem_arrays, action)
    unlimited = make_problem()
    value_s = unlimited.value_s(np.full(problem.graph.num_ops, 2))
    assert observations.value[0] > value_s / problem_arrays.unit_s
    np.testing.assert_array_equal(state.best_placement, start.placement)
