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
    """Returns the last state and the rewards for int32 [T] actions."""
    return jax.lax.scan(environments.step, environments.reset(problem), devices)


@pytest.mark.parametrize("objective", helpers.nightly_except(["makespan", "serial"], OBJECTIVES))
def test_last_reward_is_the_value(objective):
    problem = make_problem(0, objective, colocated=0.5)
    num_ops = problem.graph.num_ops
    devices = np.random.default_rng(1).integers(0, 3, num_ops).astype(np.int32)
    state, rewards = play(environments.make_arrays(problem), devices)
    placement = np.asarray(state.placement)[: problem.num_decisions]
    unit_s = problem.evaluate(problem.single_devices).min()
    assert rewards[-1] == pytest.approx(-problem.evaluate_penalised(placement[None])[0] / unit_s)
    np.testing.assert_array_equal(rewards[:-1], 0)
    devices = problem.expand(placement)[:, None]
    expected_s = makespan.finish_s(problem.makespan_tables, devices)[:, 0]
    np.testing.assert_allclose(state.finish_s[:num_ops], expected_s, rtol=1e-5)


def test_earliest_finish_beats_single_devices():
    graph = helpers.fork_join(4, 3)
    free = np.zeros((2, 2), np.float32)
    costs = helpers.unit_costs(graph, transfer_latency_s=free, transfer_s_per_byte=free)
    problem = helpers.as_problem(graph, costs, "makespan")

    def advance(state, _):
        return environments.step(state, environments.observe(state).finish_s.argmin())

    start = environments.reset(environments.make_arrays(problem))
    _, rewards = jax.lax.scan(advance, start, length=problem.graph.num_ops)
    assert -1 < rewards[-1] < 0


def test_problems_form_a_batch():
    problems = [make_problem(seed) for seed in (0, 1)]
    devices = np.zeros(problems[1].graph.num_ops, np.int32)
    arrays = [environments.make_arrays(problem) for problem in problems]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)
    states, rewards = jax.vmap(play, in_axes=(0, None))(batch, devices)
    # The first problem has an operation less, after which nothing changes.
    assert states.num_placed.tolist() == [26, 27]
    assert (rewards[:, -3:] != 0).tolist() == [[False, True, False], [False, False, True]]


def test_impossible_problem_is_refused():
    problem = make_problem()
    costs = problem.costs._replace(
        capacity_bytes=np.zeros(3, np.float32),
        memory_bytes=np.ones(problem.graph.num_ops, np.float32),
    )
    with pytest.raises(UserError, match="none of"):
        environments.make_arrays(problem._replace(costs=costs))
