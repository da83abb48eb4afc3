"""Learning on several graphs at once, and placing another one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.learning import base, batched, local_search
from placement.policies import group_moves, scheduler
from placement.policies.inputs import read_operations
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
    state = base.State(None, None, jax.random.key(0), jnp.full(1, jnp.nan), jnp.zeros((), int))
    latency_s = np.array([1.0, 2.0, 3.0, 4.0])
    both = jnp.asarray(np.append(latency_s, 100 * latency_s)[:, None], jnp.float32)
    compute_advantages = jax.jit(base.compute_advantages, static_argnums=0)
    advantage, _ = compute_advantages(settings, state, both, jnp.array([1.0, 100.0]))
    np.testing.assert_allclose(advantage[:4], advantage[4:], rtol=1e-5)
    assert advantage[0] > 0 > advantage[3]


@pytest.mark.slow
def test_local_searches_train_one_policy(monkeypatch):
    steps, num_samples = 24, 4  # so few samples that no search ends in its first step
    monkeypatch.setattr(batched, "_LOCAL_SEARCH_STEPS", steps)
    policy = group_moves.make(num_devices=2, hidden_size=8, num_layers=1, levels=3, groups=16)
    settings = base.Settings(num_samples=num_samples, entropy_weight=0.0)
    learner = local_search.make_learner(policy, settings)
    graphs = [read_operations(problem, num_nodes=20, num_edges=30).graph for problem in PROBLEMS]
    prepared = [batched.prepare(*pair) for pair in zip(graphs, PROBLEMS, strict=True)]
    stack = batched.stack(prepared)
    state = learner.init(jax.random.key(0), graphs[0])
    after, metrics = batched.train_by_local_search(learner, state, stack)
    assert metrics["evaluated"] == steps * num_samples * len(PROBLEMS)
    assert after.updates == steps * len(PROBLEMS)
    assert after.local_search is None
    assert metrics["ratio"] < 1
    rows = helpers.all_placements(PROBLEMS[0].graph.num_ops, 2)
    best_s = float(np.min(PROBLEMS[0].evaluate(rows)))
    repeated, repeated_metrics = batched.train_by_local_search(
        learner, state, batched.stack(3 * prepared[:1])
    )
    assert repeated_metrics["ratio"] == pytest.approx(best_s / stack.reference_s[0])
    assert any(
        (x != y).any()
        for x, y in zip(
            jax.tree.leaves(repeated.params), jax.tree.leaves(after.params), strict=True
        )
    )
