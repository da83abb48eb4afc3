"""What every policy must fulfil, crossed with every policy; a new one joins `POLICIES`."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.policies import hsdag
from placement.types import Params, Policy, Sample
from tests import helpers

POLICIES: dict[str, Callable[[], Policy]] = {
    "hsdag": lambda: hsdag.make(num_devices=2, hidden_size=8),
    "hsdag, deep parse": lambda: hsdag.make(
        num_devices=2, hidden_size=8, levels=2, threshold=0.0
    ),
    "hsdag, groups": lambda: hsdag.make(num_devices=2, hidden_size=8, decide="group"),
    "hsdag, no parse": lambda: hsdag.make(num_devices=2, hidden_size=8, levels=0),
    "hsdag, three steps": lambda: hsdag.make(num_devices=2, hidden_size=8, episode_steps=3),
}
STEPS = {"hsdag, three steps": 3}  # T, where it is not 1
ONE_STEP = [name for name in POLICIES if name not in STEPS]
NUM_SAMPLES = 512

every_policy = pytest.mark.parametrize("name", POLICIES)
every_one_step_policy = pytest.mark.parametrize("name", ONE_STEP)


@functools.cache
def _jitted(name: str) -> Policy:
    """The policy compiled, so that tests on graphs of one bucket share the compilations."""
    policy = POLICIES[name]()
    return Policy(
        jax.jit(policy.init),
        jax.jit(policy.sample, static_argnums=3),
        jax.jit(policy.log_prob),
        jax.jit(policy.greedy),
    )


@functools.cache
def _params(name: str) -> Params:
    """Parameters far enough from the initial ones that devices are not equally likely."""
    params = _jitted(name).init(jax.random.key(0), helpers.batched(helpers.diamond()))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        leaf + 0.2 * jax.random.normal(key, leaf.shape)
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, moved)


def _sample(name: str, graph: jraph.GraphsTuple, seed: int = 2) -> Sample:
    return _jitted(name).sample(_params(name), jax.random.key(seed), graph, NUM_SAMPLES)


def _distribution(name: str, graph: jraph.GraphsTuple, num_ops: int) -> tuple[Sample, np.ndarray]:
    """The distinct placements among the samples of a tiny graph, and their log-probabilities."""
    drawn = _sample(name, graph)
    _, first = np.unique(drawn.placement[:, 0, :num_ops], axis=0, return_index=True)
    distinct = Sample(*(field[first] for field in drawn))
    return distinct, np.asarray(distinct.log_prob[:, 0])


def _close(actual: object, expected: object) -> None:
    """Floats up to rounding; whole numbers exactly."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if np.issubdtype(np.asarray(e).dtype, np.floating):
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)
        else:
            np.testing.assert_array_equal(a, e)


@every_policy
def test_shapes_and_types(name):
    graph = helpers.batched(helpers.diamond())
    drawn, steps = _sample(name, graph), STEPS.get(name, 1)
    assert drawn.placement.shape == (NUM_SAMPLES, steps, 16)
    assert drawn.placement.dtype == jnp.int32
    assert drawn.log_prob.shape == drawn.entropy.shape == (NUM_SAMPLES, steps)
    assert drawn.log_prob.dtype == drawn.entropy.dtype == jnp.float32
    again = _jitted(name).log_prob(_params(name), graph, drawn)
    assert again.log_prob.shape == again.entropy.shape == (NUM_SAMPLES, steps)
    greedy = _jitted(name).greedy(_params(name), graph)
    assert (greedy.shape, greedy.dtype) == ((16,), jnp.int32)
    assert set(np.unique(drawn.placement)) | set(np.unique(greedy)) <= {0, 1}


@every_policy
def test_log_prob_of_a_sample_is_the_one_that_came_with_it(name):
    graph = helpers.batched(helpers.random_dag(np.random.default_rng(0), 9))
    drawn = _sample(name, graph)
    again = _jitted(name).log_prob(_params(name), graph, drawn)
    _close((again.log_prob, again.entropy), (drawn.log_prob, drawn.entropy))
    assert np.std(drawn.log_prob) > 0.01


@every_policy
def test_keys_decide_the_draw(name):
    graph = helpers.batched(helpers.diamond())
    first, same, other = (_sample(name, graph, seed).placement for seed in (3, 3, 4))
    assert (first == same).all()
    assert (first != other).any()
    assert (first != first[0]).any()


@every_policy
def test_padding_changes_nothing(name):
    num_ops, graph = 9, helpers.random_dag(np.random.default_rng(1), 9)
    tight = helpers.batched(graph, num_nodes=num_ops + 1)
    wide = helpers.batched(graph, num_nodes=37, num_edges=50)
    policy, params = _jitted(name), _params(name)
    from_tight, from_wide = _sample(name, tight), _sample(name, wide)
    tight_ops, wide_ops = (s.placement[..., :num_ops] for s in (from_tight, from_wide))
    np.testing.assert_array_equal(tight_ops, wide_ops)
    _close(from_wide[1:], from_tight[1:])
    _close(policy.log_prob(params, wide, from_wide), policy.log_prob(params, tight, from_tight))
    greedy = policy.greedy(params, tight)[:num_ops], policy.greedy(params, wide)[:num_ops]
    np.testing.assert_array_equal(*greedy)


@every_policy
def test_jit_changes_nothing(name):
    graph = helpers.batched(helpers.random_dag(np.random.default_rng(2), 7))
    policy, params, key = POLICIES[name](), _params(name), jax.random.key(2)
    drawn = policy.sample(params, key, graph, NUM_SAMPLES)
    _close(_sample(name, graph), drawn)
    _close(_jitted(name).log_prob(params, graph, drawn), policy.log_prob(params, graph, drawn))
    _close(_jitted(name).greedy(params, graph), policy.greedy(params, graph))


@every_policy
def test_graphs_of_one_bucket_share_one_trace(name):
    policy, traces = POLICIES[name](), []

    def count(params: Params, graph: jraph.GraphsTuple) -> tuple[Sample, jax.Array]:
        traces.append(graph)
        drawn = policy.sample(params, jax.random.key(0), graph, 2)
        return policy.log_prob(params, graph, drawn), policy.greedy(params, graph)

    counted, rng = jax.jit(count), np.random.default_rng(3)
    for num_ops in (5, 8, 3):  # at most 15 edges
        graph = helpers.random_dag(rng, num_ops, edge_probability=0.2)
        counted(_params(name), helpers.batched(graph))
    assert len(traces) == 1
    counted(_params(name), helpers.batched(helpers.chain(17)))
    assert len(traces) == 2


@every_policy
def test_devices_that_cannot_run_an_operation_are_never_chosen(name):
    allowed = np.ones((4, 2), bool)
    allowed[0, 1] = allowed[3, 1] = False
    graph = helpers.batched(helpers.diamond(), allowed=allowed)
    drawn = _sample(name, graph)
    assert (drawn.placement[..., [0, 3]] == 0).all()
    assert (_jitted(name).greedy(_params(name), graph)[np.array([0, 3])] == 0).all()
    assert np.isfinite(drawn.log_prob).all()


@every_policy
def test_a_forced_placement_is_certain(name):
    only_second = np.tile([False, True], (4, 1))
    graph = helpers.batched(helpers.diamond(), allowed=only_second)
    drawn = _sample(name, graph)
    assert (drawn.placement[..., :4] == 1).all()
    np.testing.assert_allclose(drawn.log_prob, 0.0, atol=1e-6)
    np.testing.assert_allclose(drawn.entropy, 0.0, atol=1e-6)


@every_one_step_policy
@pytest.mark.parametrize("restricted", [False, True])
def test_probabilities_of_all_placements_sum_to_one(name, restricted):
    allowed = np.ones((4, 2), bool)
    allowed[1, 0] = not restricted
    graph = helpers.batched(helpers.diamond(), allowed=allowed)
    distinct, log_prob = _distribution(name, graph, 4)
    assert len(distinct.placement) in (1, 2, 4, 8, 16)
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-4)
    assert np.ptp(log_prob) > 0.05


@pytest.mark.parametrize("name", ["hsdag", "hsdag, no parse", "hsdag, deep parse"])
def test_policies_that_place_operations_can_reach_every_placement(name):
    graph = helpers.batched(helpers.diamond())
    distinct, _ = _distribution(name, graph, 4)
    np.testing.assert_array_equal(distinct.placement[:, 0, :4], helpers.all_placements(4, 2))


@every_one_step_policy
def test_samples_are_as_frequent_as_their_probability_says(name):
    graph = helpers.batched(helpers.diamond())
    distinct, log_prob = _distribution(name, graph, 4)
    drawn = _sample(name, graph, seed=5).placement[:, 0, :4]
    counts = np.array([(drawn == p[0, :4]).all(axis=1).sum() for p in distinct.placement])
    expected = NUM_SAMPLES * np.exp(log_prob)
    deviation = np.sqrt(expected * (1 - np.exp(log_prob)))
    assert (np.abs(counts - expected) < 4 * deviation + 1e-3).all()


@every_one_step_policy
def test_entropy_is_that_of_the_distribution(name):
    """For one that decides step by step, given what it drew: right on average over the draws."""
    graph = helpers.batched(helpers.diamond())
    distinct, log_prob = _distribution(name, graph, 4)
    probability = np.exp(log_prob)
    expected = -(probability * log_prob).sum()
    assert probability @ distinct.entropy[:, 0] == pytest.approx(expected, rel=1e-4)


@every_one_step_policy
def test_greedy_is_the_most_probable_placement(name):
    graph = helpers.batched(helpers.diamond())
    distinct, log_prob = _distribution(name, graph, 4)
    greedy = _jitted(name).greedy(_params(name), graph)
    np.testing.assert_array_equal(greedy[:4], distinct.placement[log_prob.argmax(), 0, :4])


@every_policy
@pytest.mark.parametrize("restricted", [False, True])
def test_gradients_are_finite_and_reach_every_part(name, restricted):
    rng = np.random.default_rng(4)
    allowed = ~(restricted & (rng.random((9, 2)) < 0.3))  # some operations are allowed nowhere
    graph = helpers.batched(helpers.random_dag(rng, 9), allowed=allowed)
    drawn = _sample(name, graph)

    def loss(params: Params) -> jax.Array:
        now = _jitted(name).log_prob(params, graph, drawn)
        return (now.log_prob * jnp.arange(NUM_SAMPLES)[:, None] / NUM_SAMPLES).sum() + now.entropy.sum()

    gradient = jax.grad(loss)(_params(name))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


@every_policy
@pytest.mark.parametrize("graph", [helpers.chain(1), helpers.chain(15)], ids=["one", "chain"])
def test_graphs_without_edges_and_graphs_that_fill_their_bucket(name, graph):
    drawn = _sample(name, helpers.batched(graph))
    assert np.isfinite(drawn.log_prob).all()
    most = graph.num_ops * np.log(2) + 1e-4
    assert (0 < drawn.entropy).all()
    assert (drawn.entropy < most).all()
