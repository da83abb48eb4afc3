import functools

import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.learning import base
from placement.policies import doppler, inputs
from placement.problem import Problem
from placement.types import OpGraph, Params
from tests import helpers
from tests.simulators import reference

SIZE = (10, 20, 14, 3)  # operations, edges (some parallel), tensors, devices
_SIMULATION = functools.partial(doppler.make, hidden_size=8, rounds=2, stages="simulation")


def _problem(graph: OpGraph) -> Problem:
    """Computing takes 1 on either device."""
    compute_s = np.ones((graph.num_ops, 2), np.float32)
    costs = helpers.unit_costs(graph, compute_s=compute_s)
    return helpers.as_problem(graph, costs, "makespan")


def _read(problem: Problem) -> jraph.GraphsTuple:
    return inputs.with_finite_costs(doppler.read(problem).graph)


def _draw(problem: Problem, params: Params, num_samples: int = 64) -> doppler._Episode:
    network = doppler._Network(8, 2)
    draw = jax.jit(functools.partial(doppler._draw_episodes, network), static_argnums=3)
    return draw(params, jax.random.key(1), _read(problem), num_samples)


def _initial_params(problem: Problem) -> Params:
    policy = _SIMULATION(num_devices=len(problem.devices))
    return base.initial_params(policy.init, jax.random.key(0), doppler.read(problem).graph)


def test_diamond_device_features():
    """op0 ran from 0 to 1 on device 0, then op1 from 111 to 112 on device 1 and op2 from 1 to 2."""
    graph = _read(_problem(helpers.diamond()))
    num_nodes = len(graph.nodes["mask"])

    def pad(values: list[float]) -> jax.Array:
        return jnp.pad(jnp.asarray(values, jnp.float32), (0, num_nodes - 4))

    state = doppler._PartialSchedule(
        device=pad([0, 1, 0, -1]).astype(jnp.int32),
        class_device=pad([0, 1, 0, -1]).astype(jnp.int32),
        num_missing=pad([0, 0, 0, 0]).astype(jnp.int32),
        start_s=pad([0, 111, 1, 0]),
        finish_s=pad([1, 112, 2, 0]),
        free_s=jnp.array([2.0, 112.0]),
        load_s=jnp.array([2.0, 1.0]),
        embedding=jnp.zeros((2, 8)),
    )
    features, start_s, _ = doppler._device_features(graph.globals, state, jnp.int32(3))
    # On device 0 op1's output arrives at 112 + 130, on device 1 op2's at 2 + 140.
    assert start_s.tolist() == [242, 142]
    assert features.tolist() == [[2, 1, 1, 2, 242], [1, 1, 111, 112, 142]]


def test_episodes_follow_inputs():
    problem, _ = reference.random_problem(np.random.default_rng(3), "makespan", SIZE, colocated=0.5)
    episodes = _draw(problem, _initial_params(problem))
    order, placement = np.asarray(episodes.order)[:, :10], np.asarray(episodes.placement)[:, :10]
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(10), (64, 1)))
    position = np.argsort(order, axis=1)
    graph = problem.graph
    assert (position[:, graph.senders] < position[:, graph.receivers]).all()
    assert len(np.unique(order, axis=0)) > 5
    assert (placement == placement[:, inputs.find_leaders(problem, 10)]).all()


def test_expert_prefers_longer_path():
    """Only SEL's choice between op1 and op2 matters here, where devices are equally good."""
    problem = _problem(helpers.diamond())
    params = _initial_params(problem)
    t: doppler.Tables = doppler.read(problem).graph.globals.policy_tables
    logits = doppler._Network(8, 2).apply(params, _read(problem), method="select")
    log_probs = jax.nn.log_softmax(logits[1:3])
    episodes = _draw(problem, params, 8)
    assert t.bottom_level[2] > t.bottom_level[1]
    np.testing.assert_allclose(episodes.expert_log_prob, log_probs[1] - 4 * np.log(2), atol=0.1)
