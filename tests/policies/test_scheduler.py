"""The learned list scheduler: what its features are, what it repeats, and what it knows at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.learning.base import initial_params
from placement.policies import scheduler
from placement.problem import Problem
from tests import helpers

SAMPLES, STEPS = 32, 3
POLICY = scheduler.make(num_devices=2, hidden_size=8, episode_steps=STEPS)


def _read(problem: Problem, *size: int):
    return scheduler.read(problem, *size).graph


def _problem(graph=None, **changes) -> Problem:
    """Computing takes 1 on device 0 and 2 on device 1; transfers 0.5 and 0.01 a byte."""
    graph = helpers.diamond() if graph is None else graph
    apart = 1 - np.eye(2, dtype=np.float32)
    links = {"transfer_latency_s": 0.5 * apart, "transfer_s_per_byte": 0.01 * apart}
    return helpers.as_problem(graph, helpers.unit_costs(graph, **links, **changes), "makespan")


@functools.cache
def _moved(seed: int = 1):
    """Parameters away from the initial ones, at which the MLP says nothing."""
    params = initial_params(POLICY.init, jax.random.key(0), _read(_problem()))
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    moved = [leaf + 0.2 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(tree, moved)


@jax.jit
def _ask(params, key, graph):
    drawn = POLICY.sample(params, key, graph, SAMPLES)
    return drawn, POLICY.log_prob(params, graph, drawn)


def test_features_by_hand():
    """What op1 of the diamond sees when op0 and op2, before it in priority, are on device 0."""
    graph = jax.tree.map(jnp.asarray, _read(_problem()))

    def write(rows, op, output, x, candidate):
        rows = rows[0].at[output].set(x), rows[1].at[output].set(candidate)
        return jnp.zeros(1, jnp.int32), rows

    @jax.jit
    def seen(previous):
        rows = jnp.zeros((18, scheduler.NUM_FEATURES, 2, 1)), jnp.ones((18, 2, 1), bool)
        return scheduler._list_schedule(graph, jnp.full((16, 1), previous), 1, write, rows)[1]

    x, candidate = seen(0)
    assert bool(candidate[:4].all())
    np.testing.assert_array_equal(x[1, :, 0, 0], np.zeros(scheduler.NUM_FEATURES))
    # op0 ends at 1, op2 at 2. There op1 ends at 3; on device 1, idle until then, its input is there
    # at 1.6 and it ends at 3.6. From there op3 is done in 1, or in 1 and the mean transfer, 0.8.
    seconds = np.array([0.6, 0.8, 0.6, 1.0, 1.6, 0.8, 0.8])
    np.testing.assert_allclose(x[1, :7, 1, 0], seconds / 1.5, rtol=1e-5)
    assert x[1, 7, 1, 0] == 1
    first, _ = seen(-1)
    np.testing.assert_array_equal(first[1, 5:, 1, 0], np.zeros(3))
    np.testing.assert_array_equal(first[1, :5, 1, 0], x[1, :5, 1, 0])


def test_full_memories_are_avoided():
    graph = helpers.chain(4)
    costs = helpers.unit_costs(
        graph, memory_bytes=np.ones(4, np.float32), capacity_bytes=np.array([1, 4], np.float32)
    )
    read = _read(helpers.as_problem(graph, costs, "makespan"))
    drawn, _ = _ask(_moved(), jax.random.key(1), read)
    assert (np.asarray(drawn.placement[..., :4]) == 0).sum(axis=-1).max() == 1
    tight = costs._replace(capacity_bytes=np.array([1, 1], np.float32))
    drawn, _ = _ask(
        _moved(), jax.random.key(1), _read(helpers.as_problem(graph, tight, "makespan"))
    )
    assert np.isfinite(np.asarray(drawn.log_prob)).all()


def test_untrained_samples_contain_optimum():
    problem = _problem(helpers.fork_join(2, 2))
    placements = helpers.all_placements(problem.graph.num_ops, 2)
    best_s = float(np.asarray(problem.evaluate(placements)).min())
    params = initial_params(POLICY.init, jax.random.key(0), _read(problem))
    drawn, _ = _ask(params, jax.random.key(6), _read(problem))
    found = np.asarray(drawn.placement[:, -1, : problem.graph.num_ops])
    assert np.asarray(problem.evaluate(found)).min() == pytest.approx(best_s)
