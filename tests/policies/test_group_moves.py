"""Group moves as a decision process: what its samples do, and what they depend on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.learning import base, local_search
from placement.policies import graph_parsing, group_moves
from placement.policies.inputs import read_operations
from placement.problem import Problem
from placement.simulators import makespan
from placement.types import Sample
from tests import helpers
from tests.simulators import reference

LEVELS, NUM_SAMPLES = 5, 64
POLICY = group_moves.make(num_devices=3, hidden_size=8, num_layers=1, levels=LEVELS, groups=64)
SIZE = (14, 24, 24, 3)  # operations, edges, tensors, devices
PADDED = {"num_nodes": 16, "num_edges": 32}  # every graph: one compilation serves all


def _problem(seed: int, **costs: np.ndarray) -> Problem:
    problem, _ = reference.random_problem(np.random.default_rng(seed), "makespan", SIZE)
    return problem._replace(costs=problem.costs._replace(**costs))


_sample = jax.jit(POLICY.sample, static_argnums=3)


@functools.cache
def _params():
    """Far from the initial ones, which depend on no size of a graph."""
    init = base.initial_params(POLICY.init, jax.random.key(0), read_operations(_problem(0)).graph)
    leaves, tree = jax.tree.flatten(init)
    rng = np.random.default_rng(1)
    moved = [leaf + 0.2 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(tree, moved)


def _ask(problem: Problem, before: np.ndarray, seed: int = 0):
    """Returns the policy's graph, and samples from a placement int [N]."""
    graph = read_operations(problem, **PADDED).graph
    padded = np.zeros((NUM_SAMPLES, len(graph.nodes["mask"])), np.int32)
    padded[:, : len(before)] = before
    return graph, _sample(_params(), jax.random.key(seed), graph, NUM_SAMPLES, padded)


def _action(drawn: Sample) -> group_moves.Action:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], drawn.latent)


def _moved(drawn: Sample, num_ops: int) -> np.ndarray:
    return (np.asarray(drawn.placement)[:, 0] != _action(drawn).placement)[:, :num_ops]


def test_samples_move_one_group():
    for seed in range(3):
        problem = _problem(seed)
        num_ops = problem.graph.num_ops
        before = np.random.default_rng(seed).integers(0, 3, num_ops)
        graph, drawn = _ask(problem, before, seed)
        action = _action(drawn)
        moved = _moved(drawn, num_ops)
        assert moved.any()
        decides = np.asarray(graph.nodes["mask"])[:num_ops]
        allowed = np.asarray(graph.nodes["allowed"])
        for b in np.flatnonzero(moved.any(axis=1)):
            ops = np.flatnonzero(moved[b])
            nth, device = divmod(int(action.move[b]), 3)
            root = action.root[b, action.parse[b, nth], action.level[b, nth]]
            anchor = action.anchor[b, nth]
            assert (root[ops] == root[anchor]).all()
            assert decides[ops].all()
            assert allowed[ops, device].all()
            assert (np.asarray(drawn.placement)[b, 0, ops] == device).all()
            if action.one_device[b, nth]:
                assert (before[ops] == before[anchor]).all()


@pytest.mark.nightly
def test_parse_credit_follows_gradient():
    """Two chains on one device, and moving a whole chain to the other is the only gain.

    The true gradient, of the mean reward through the probability of all edges of all parses, is
    estimated from the same samples; its deviation is larger.
    """
    graph = helpers.build("chains", 6, [(0, 1), (1, 2), (3, 4), (4, 5)])
    transfer_s = 2 * (1 - np.eye(2, dtype=np.float32))
    costs = helpers.unit_costs(graph, transfer_latency_s=transfer_s)
    costs = costs._replace(
        compute_s=np.ones((6, 2), np.float32), transfer_s_per_byte=0 * transfer_s
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    policy = group_moves.make(
        num_devices=2, hidden_size=4, num_layers=1, levels=3, groups=16, uniform=0
    )
    inputs = jax.tree.map(jnp.asarray, read_operations(problem, num_nodes=8, num_edges=8).graph)
    params = base.initial_params(policy.init, jax.random.key(0), inputs)["params"]
    weights = {name: params[name] for name in ("delay_weight", "next_weight")}
    placement, network = jnp.zeros((8, 8), jnp.int32), group_moves._Network(4, 1)

    def estimate(key):
        samples = policy.sample({"params": params}, key, inputs, 8, placement)
        latency_s = makespan.latency(inputs.globals.simulator, samples.placement[:, 0].T)
        reward = jnp.maximum(jnp.log(6.0 / latency_s), 0.0)
        action = jax.tree.map(lambda leaf: leaf[0, 0], samples.latent)

        def credit(weights):
            score = policy.log_prob({"params": params | weights}, inputs, samples).shared
            advantage = local_search.subtract_other_draws(reward, score.number[:, 0])
            return (advantage * score.log_prob[:, 0]).mean()

        def log_prob(weights):
            encoding = network.apply(
                {"params": params | weights}, inputs, placement[0], action.schedule, method="encode"
            )
            parses = graph_parsing.Parse(action.root, action.kept_end)
            edge_log_prob = jax.vmap(
                lambda mask, parse: graph_parsing.log_prob(
                    encoding.scores, encoding.edges._replace(mask=mask), parse
                )
            )
            return edge_log_prob(encoding.edges.mask, parses).sum()

        gradients = jax.grad(credit)(weights), jax.grad(log_prob)(weights)
        return (*(jnp.stack(jax.tree.leaves(each)) for each in gradients), reward.mean())

    keys = jax.random.split(jax.random.key(0), 4000)
    credits, scores, rewards = map(np.asarray, jax.jit(jax.vmap(estimate))(keys))
    exact = (rewards - rewards.mean())[:, None] * scores
    credit, gradient = credits.mean(axis=0), exact.mean(axis=0)
    cosine = credit @ gradient / np.linalg.norm(credit) / np.linalg.norm(gradient)
    assert np.linalg.norm(gradient) > 4 * np.linalg.norm(exact.std(axis=0)) / np.sqrt(len(keys))
    assert cosine > 0.9
    assert 0.5 < np.linalg.norm(credit) / np.linalg.norm(gradient) < 1.1  # 0.8
    assert np.linalg.norm(credits.std(axis=0)) < 0.5 * np.linalg.norm(exact.std(axis=0))
