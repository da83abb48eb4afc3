"""The environment that places the next operation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement import environments
from placement.errors import UserError
from placement.simulators import OBJECTIVES, makespan
from tests import helpers


def make_problem(seed: int = 0, objective: str = "makespan", *, colocated: float = 0.0):
    rng = np.random.default_rng(seed)
    graph = helpers.rewired(
        rng, helpers.random_dag_of_size(rng, 26 + seed, 41 + seed, 30), colocated=colocated
    )
    costs = helpers.random_costs(rng, graph, 3)
    return helpers.as_problem(graph, costs, objective)


@jax.jit
def play(problem, devices):
    """Returns the last state, and the rewards and ends of all steps, for int32 [T] actions."""

    def advance(state, device):
        result = environments.step(state, device)
        return result.state, (result.reward, result.is_done)

    state, _ = environments.reset(jax.random.key(0), problem)
    return jax.lax.scan(advance, state, devices)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_last_reward_is_the_value(objective):
    problem = make_problem(0, objective)
    devices = np.random.default_rng(1).integers(0, 3, problem.graph.num_ops).astype(np.int32)
    state, (rewards, is_done) = play(environments.make_arrays(problem), devices)
    placement = np.asarray(state.placement)[: problem.graph.num_ops]
    unit_s = problem.evaluate(problem.single_devices).min()
    assert rewards[-1] == pytest.approx(-problem.evaluate_penalised(placement[None])[0] / unit_s)
    np.testing.assert_array_equal(rewards[:-1], 0)
    np.testing.assert_array_equal(is_done, np.arange(len(devices)) == len(devices) - 1)


def test_schedule_is_the_simulators():
    problem = make_problem()
    devices = np.random.default_rng(1).integers(0, 3, problem.graph.num_ops).astype(np.int32)
    state, _ = play(environments.make_arrays(problem), devices)
    placement = np.asarray(state.placement)[: problem.graph.num_ops]
    expected_s = makespan.finish_s(problem.makespan_tables, placement[:, None])[:, 0]
    np.testing.assert_allclose(state.finish_s[: len(placement)], expected_s, rtol=1e-5)


def test_earliest_finish_beats_single_devices():
    graph = helpers.fork_join(4, 3)
    free = np.zeros((2, 2), np.float32)
    costs = helpers.unit_costs(graph, transfer_latency_s=free, transfer_s_per_byte=free)
    problem = helpers.as_problem(graph, costs, "makespan")
    problem_arrays = environments.make_arrays(problem)

    def advance(carry, _):
        state, observation = carry
        result = environments.step(state, observation.finish_s.argmin())
        return (result.state, result.observation), result.reward

    start = environments.reset(jax.random.key(0), problem_arrays)
    _, rewards = jax.lax.scan(advance, start, length=problem.graph.num_ops)
    assert -1 < rewards[-1] < 0


def test_colocated_operations_follow_first():
    problem = make_problem(colocated=0.5)
    assert problem.is_colocated
    devices = np.random.default_rng(1).integers(0, 3, problem.graph.num_ops).astype(np.int32)
    state, (rewards, _) = play(environments.make_arrays(problem), devices)
    placement = np.asarray(state.placement)[: problem.graph.num_ops]
    np.testing.assert_array_equal(placement, placement[problem.leaders])
    assert np.isfinite(rewards).all()


def test_problems_form_a_batch():
    problems = [make_problem(seed) for seed in (0, 1)]
    devices = np.zeros(problems[1].graph.num_ops, np.int32)
    batch = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *map(environments.make_arrays, problems)
    )
    states, (rewards, is_done) = jax.vmap(play, in_axes=(0, None))(batch, devices)
    np.testing.assert_array_equal(states.num_placed, [p.graph.num_ops for p in problems])
    np.testing.assert_array_equal(is_done[:, -3:], [[False, True, True], [False, False, True]])
    np.testing.assert_array_equal(
        rewards[:, -3:] != 0, [[False, True, False], [False, False, True]]
    )


def test_impossible_problem_is_refused():
    problem = make_problem()
    compute_s = np.array(problem.costs.compute_s)
    compute_s[[0, 1, 2], [0, 1, 2]] = np.inf
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    limited = problem._replace(
        costs=problem.costs._replace(
            capacity_bytes=np.zeros(3, np.float32),
            memory_bytes=np.ones(problem.graph.num_ops, np.float32),
        )
    )
    with pytest.raises(UserError, match="none of"):
        environments.make_arrays(limited)
