"""What every policy must fulfil, crossed with every policy; a new one joins `POLICIES`."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.policies import hsdag, placeto
from placement.types import Array, LogProb, Params, Policy, Sample
from tests import helpers

pytestmark = pytest.mark.usefixtures("quick_compilation")

POLICIES: dict[str, Callable[[], Policy]] = {
    "hsdag": lambda: hsdag.make(num_devices=2, hidden_size=8),
    "hsdag, deep parse": lambda: hsdag.make(num_devices=2, hidden_size=8, levels=2, threshold=0.0),
    "hsdag, groups": lambda: hsdag.make(num_devices=2, hidden_size=8, decide="group"),
    "hsdag, no parse": lambda: hsdag.make(num_devices=2, hidden_size=8, levels=0),
    "hsdag, three steps": lambda: hsdag.make(num_devices=2, hidden_size=8, episode_steps=3),
    "placeto": lambda: placeto.make(num_devices=2, rounds=3),
}
STEPS = {"hsdag, three steps": 3, "placeto": 16}  # T in the smallest bucket, where it is not 1
ONE_STEP = [name for name in POLICIES if name not in STEPS]
NUM_SAMPLES = 512

# The graphs carry what Placeto reads; other policies must not mind.
_batched = functools.partial(helpers.batched, costed=True)

every_policy = pytest.mark.parametrize("name", POLICIES)
every_one_step_policy = pytest.mark.parametrize("name", ONE_STEP)


class _Answers(NamedTuple):
    """What a policy says about one graph."""

    drawn: Sample
    again: LogProb  # of what was drawn
    greedy: Array


def _ask(policy: Policy, params: Params, key: Array, graph: jraph.GraphsTuple) -> _Answers:
    drawn = policy.sample(params, key, graph, NUM_SAMPLES)
    return _Answers(drawn, policy.log_prob(params, graph, drawn), policy.greedy(params, graph))


@functools.cache
def _compiled(name: str) -> Callable[[Params, Array, jraph.GraphsTuple], _Answers]:
    """One compilation of everything, shared by all tests on graphs of one bucket."""
    return jax.jit(functools.partial(_ask, POLICIES[name]()))


@functools.cache
def _params(name: str) -> Params:
    """Parameters far enough from the initial ones that devices are not equally likely."""
    init = jax.jit(POLICIES[name]().init)
    leaves, tree = jax.tree.flatten(init(jax.random.key(0), _batched(helpers.diamond())))
    rng = np.random.default_rng(1)
    moved = [leaf + 0.2 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(tree, moved)


def _answers(name: str, graph: jraph.GraphsTuple, seed: int = 2) -> _Answers:
    return _compiled(name)(_params(name), jax.random.key(seed), graph)


def _distribution(name: str, graph: jraph.GraphsTuple) -> tuple[Sample, np.ndarray]:
    """The distinct placements among the samples of a tiny graph, and their log-probabilities."""
    drawn = _answers(name, graph).drawn
    placement = drawn.placement[:, 0, : graph.nodes["mask"].sum()]
    _, first = np.unique(placement, axis=0, return_index=True)
    distinct = Sample(placement[first][:, None], drawn.log_prob[first], drawn.entropy[first])
    return distinct, np.asarray(distinct.log_prob[:, 0])


def _deciding_steps(name: str, num_ops: int) -> int:
    """Placeto's steps are operations; those of padding decide nothing."""
    return num_ops if name == "placeto" else STEPS.get(name, 1)


def _close(actual: object, expected: object) -> None:
    """Floats up to rounding; whole numbers exactly."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if np.issubdtype(np.asarray(e).dtype, np.floating):
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)
        else:
            np.testing.assert_array_equal(a, e)


@every_policy
def test_shapes_and_types(name):
    drawn, again, greedy = _answers(name, _batched(helpers.diamond()))
    steps = STEPS.get(name, 1)
    assert drawn.placement.shape == (NUM_SAMPLES, steps, 16)
    assert greedy.shape == (16,)
    assert drawn.placement.dtype == greedy.dtype == jnp.int32
    for quantity in (drawn.log_prob, drawn.entropy, again.log_prob, again.entropy):
        assert quantity.shape == (NUM_SAMPLES, steps)
        assert quantity.dtype == jnp.float32
    assert set(np.unique(drawn.placement)) | set(np.unique(greedy)) <= {0, 1}


@every_policy
def test_log_prob_of_a_sample_is_the_one_that_came_with_it(name):
    graph = _batched(helpers.random_dag(np.random.default_rng(0), 9, edge_probability=0.2))
    drawn, again, _ = _answers(name, graph)
    _close((again.log_prob, again.entropy), (drawn.log_prob, drawn.entropy))
    assert np.std(drawn.log_prob) > 0.01


@every_policy
def test_keys_decide_the_draw(name):
    graph = _batched(helpers.diamond())
    first, same, other = (_answers(name, graph, seed).drawn.placement for seed in (3, 3, 4))
    assert (first == same).all()
    assert (first != other).any()
    assert (first != first[0]).any()


@every_policy
def test_padding_changes_nothing(name):
    num_ops = 9
    graph = helpers.random_dag(np.random.default_rng(1), num_ops, edge_probability=0.2)
    tight = _answers(name, _batched(graph))
    wide = _answers(name, _batched(graph, num_nodes=37, num_edges=50))
    steps = _deciding_steps(name, num_ops)
    np.testing.assert_array_equal(
        wide.drawn.placement[:, :steps, :num_ops], tight.drawn.placement[:, :steps, :num_ops]
    )
    np.testing.assert_array_equal(wide.greedy[:num_ops], tight.greedy[:num_ops])
    _close(*(jax.tree.map(lambda x: x[:, :steps], (a.drawn[1:], a.again)) for a in (wide, tight)))


@every_policy
def test_jit_changes_nothing(name):
    graph = _batched(helpers.diamond())
    eager = POLICIES[name]().sample(_params(name), jax.random.key(2), graph, NUM_SAMPLES)
    _close(_answers(name, graph).drawn, eager)


@every_policy
def test_graphs_of_one_bucket_share_one_trace(name):
    traces = []

    def count(params: Params, graph: jraph.GraphsTuple) -> Sample:
        traces.append(graph)
        return POLICIES[name]().sample(params, jax.random.key(0), graph, 2)

    counted, rng = jax.jit(count), np.random.default_rng(3)
    for num_ops in (5, 8, 1):  # at most 15 edges
        graph = helpers.random_dag(rng, num_ops, edge_probability=0.2)
        counted.trace(_params(name), _batched(graph))
    assert len(traces) == 1
    counted.trace(_params(name), _batched(helpers.chain(17)))
    assert len(traces) == 2


@every_policy
def test_devices_that_cannot_run_an_operation_are_never_chosen(name):
    allowed = np.ones((4, 2), bool)
    allowed[0, 1] = allowed[3, 1] = False
    drawn, _, greedy = _answers(name, _batched(helpers.diamond(), allowed=allowed))
    assert (drawn.placement[..., [0, 3]] == 0).all()
    assert (greedy[jnp.array([0, 3])] == 0).all()
    assert np.isfinite(drawn.log_prob).all()


@every_policy
def test_a_forced_placement_is_certain(name):
    only_second = np.tile([False, True], (4, 1))
    drawn, _, greedy = _answers(name, _batched(helpers.diamond(), allowed=only_second))
    assert (drawn.placement[..., :4] == 1).all()
    assert (greedy[:4] == 1).all()
    np.testing.assert_allclose(drawn.log_prob, 0.0, atol=1e-6)
    np.testing.assert_allclose(drawn.entropy, 0.0, atol=1e-6)


@every_one_step_policy
@pytest.mark.parametrize("restricted", [False, True])
def test_probabilities_of_all_placements_sum_to_one(name, restricted):
    allowed = np.ones((4, 2), bool)
    allowed[1, 0] = not restricted
    _, log_prob = _distribution(name, _batched(helpers.diamond(), allowed=allowed))
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-4)
    assert restricted or np.ptp(log_prob) > 0.05


@pytest.mark.parametrize("name", [name for name in ONE_STEP if name != "hsdag, groups"])
def test_policies_that_place_operations_can_reach_every_placement(name):
    distinct, _ = _distribution(name, _batched(helpers.diamond()))
    np.testing.assert_array_equal(distinct.placement[:, 0], helpers.all_placements(4, 2))


@every_one_step_policy
def test_samples_are_as_frequent_as_their_probability_says(name):
    graph = _batched(helpers.diamond())
    distinct, log_prob = _distribution(name, graph)
    drawn = _answers(name, graph, seed=5).drawn.placement[:, 0, :4]
    counts = (drawn[None] == distinct.placement).all(axis=-1).sum(axis=1)
    expected = NUM_SAMPLES * np.exp(log_prob)
    deviation = np.sqrt(expected * (1 - np.exp(log_prob)))
    assert (np.abs(counts - expected) < 4 * deviation + 1e-3).all()


@every_one_step_policy
def test_entropy_is_that_of_the_distribution(name):
    """For one that decides step by step, given what it drew: right on average over the draws."""
    distinct, log_prob = _distribution(name, _batched(helpers.diamond()))
    probability = np.exp(log_prob)
    expected = -(probability * log_prob).sum()
    assert probability @ distinct.entropy[:, 0] == pytest.approx(expected, rel=1e-4)


@every_one_step_policy
def test_greedy_is_the_most_probable_placement(name):
    graph = _batched(helpers.diamond())
    distinct, log_prob = _distribution(name, graph)
    greedy = _answers(name, graph).greedy[:4]
    np.testing.assert_array_equal(greedy, distinct.placement[log_prob.argmax(), 0])


@every_policy
def test_gradients_are_finite_and_reach_every_part(name):
    policy, rng = POLICIES[name](), np.random.default_rng(4)
    graph = helpers.random_dag(rng, 9, edge_probability=0.2)
    free, forced = np.ones((9, 2), bool), rng.random((9, 2)) < 0.6  # some are allowed nowhere
    drawn = _answers(name, _batched(graph)).drawn

    @jax.jit
    @jax.grad
    def gradient(params: Params, batched: jraph.GraphsTuple) -> Array:
        now = policy.log_prob(params, batched, drawn)
        return (now.log_prob * jnp.linspace(-1, 1, NUM_SAMPLES)[:, None] + now.entropy).mean()

    everywhere = gradient(_params(name), _batched(graph, allowed=free))
    somewhere = gradient(_params(name), _batched(graph, allowed=forced))
    for leaf in (*jax.tree.leaves(everywhere), *jax.tree.leaves(somewhere)):
        assert np.isfinite(leaf).all()
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(everywhere))


@every_policy
@pytest.mark.parametrize("num_ops", [1, 15])
def test_a_single_operation_and_a_full_bucket(name, num_ops):
    drawn, _, _ = _answers(name, _batched(helpers.chain(num_ops)))
    assert np.isfinite(drawn.log_prob).all()
    assert (drawn.entropy[:, : _deciding_steps(name, num_ops)] > 0).all()
    assert (drawn.entropy < num_ops * np.log(2) + 1e-4).all()
