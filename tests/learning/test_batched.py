"""Learning on several graphs at once, and placing another one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.learning import base, batched
from placement.policies import scheduler
from placement.problem import Problem
from tests import helpers

SAMPLES = 16
POLICY = scheduler.make(num_devices=2, hidden_size=8, episode_steps=2)
STACK_POLICY = batched.batch_policy(POLICY)


def _problem(branches: int, length: int) -> Problem:
    graph = helpers.fork_join(branches, length)
    off_diagonal = 1 - np.eye(2, dtype=np.float32)
    costs = helpers.unit_costs(
        graph, transfer_latency_s=0.5 * off_diagonal, transfer_s_per_byte=0 * off_diagonal
    )
    return helpers.as_problem(graph, costs, "makespan")


def _read(problem: Problem):
    return jax.device_get(scheduler.read(problem, 20, 30).graph)


PROBLEMS = [_problem(2, 2), _problem(4, 1), _problem(3, 3)]
GRAPHS = [_read(problem) for problem in PROBLEMS]
PREPARED = [batched.prepare(*pair) for pair in zip(GRAPHS, PROBLEMS, strict=True)]
STACK = batched.stack(PREPARED)
_sample = jax.jit(POLICY.sample, static_argnums=3)


@pytest.mark.slow
def test_stack_places_graphs_separately():
    params = base.initial_params(STACK_POLICY.init, jax.random.key(0), STACK.graphs)
    key = jax.random.key(1)

    @jax.jit
    def evaluate_policy(params, key, graphs):
        samples = STACK_POLICY.sample(params, key, graphs, SAMPLES)
        return samples, STACK_POLICY.log_prob(params, graphs, samples)

    samples, log_prob = evaluate_policy(params, key, STACK.graphs)
    for i, graph_key in enumerate(jax.random.split(key, len(GRAPHS))):
        rows = slice(i * SAMPLES, (i + 1) * SAMPLES)
        single = _sample(params, graph_key, GRAPHS[i], SAMPLES)
        np.testing.assert_array_equal(samples.placement[rows], single.placement)
        np.testing.assert_allclose(samples.log_prob[rows], single.log_prob, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(log_prob.log_prob[rows], single.log_prob, rtol=1e-3, atol=1e-3)


def test_advantages_compare_within_graph():
    settings = base.Settings(num_samples=4, discount=0.0)
    state = base.State(None, None, jax.random.key(0), jnp.full(1, jnp.nan), jnp.zeros((), int), 0)
    latency_s = np.array([1.0, 2.0, 3.0, 4.0])
    both = jnp.asarray(np.append(latency_s, 100 * latency_s)[:, None], jnp.float32)
    compute_advantages = jax.jit(base.compute_advantages, static_argnums=0)
    advantage, _ = compute_advantages(settings, state, both, jnp.array([1.0, 100.0]))
    np.testing.assert_allclose(advantage[:4], advantage[4:], rtol=1e-5)
    assert advantage[0] > 0 > advantage[3]
