"""What every policy must fulfil, crossed with every policy; a new one joins `POLICIES`."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.learning import base
from placement.policies import (
    colocrl,
    cost_features,
    doppler,
    giph,
    hierarchical,
    hsdag,
    hsdag_published,
    placeto,
    scheduler,
)
from placement.types import Array, LogProb, OpGraph, Params, Policy, Sample
from tests import helpers
from tests.docs import pages

pytestmark = pytest.mark.slow


POLICIES: dict[str, Callable[[], Policy]] = {
    "hsdag": lambda: hsdag.make(num_devices=2, hidden_size=8, num_layers=1, levels=3, groups=16),
    "scheduler": lambda: scheduler.make(num_devices=2, hidden_size=8, episode_steps=2),
    "published hsdag": lambda: hsdag_published.make(
        num_devices=2, hidden_size=8, levels=32, episode_steps=1
    ),
    "published hsdag, three steps": lambda: hsdag_published.make(
        num_devices=2, hidden_size=8, episode_steps=3
    ),
    "placeto": lambda: placeto.make(num_devices=2, rounds=3),
    "giph": lambda: giph.make(num_devices=2, rounds=3),
    "doppler": lambda: doppler.make(num_devices=2, hidden_size=8, stages="simulation"),
    "colocrl": lambda: colocrl.make(num_devices=2, hidden_size=8),
    "hierarchical": lambda: hierarchical.make(num_devices=2, num_groups=2, hidden_size=8),
    "hierarchical, random groups": lambda: hierarchical.make(
        num_devices=2, num_groups=3, hidden_size=8, grouping="random"
    ),
    "the page's": lambda: pages.module("docs/POLICIES.md", "neighbours.py").make(
        num_devices=2, hidden_size=8
    ),
}
# T in the smallest bucket, where it is not 1
STEPS = {"scheduler": 2, "published hsdag, three steps": 3, "placeto": 16, "giph": 32}
# Of these policies a sample is one of many moves, which the samples before it do not take. The last
# of 512 samples find none. Which groups are drawn depends on the padding.
WITHOUT_REPLACEMENT = ("hsdag",)
ONE_STEP = [name for name in POLICIES if name not in (*STEPS, *WITHOUT_REPLACEMENT)]
# These draw more than a placement, here one of two groups for each operation, or the order of the
# operations: what has a probability is both together.
LATENT = ("hierarchical", "doppler")
# The state and the groups; the state and the move; the style.
_OTHER_LATENT = ("hsdag", "giph", "scheduler")
# Their choices are not of devices alone: they choose moves, or the next operation too.
_OTHER_CHOICES = ("hsdag", "giph", "doppler")
_VIEWS = {
    "hsdag": cost_features.cost_feature_view,
    "scheduler": cost_features.cost_feature_view,
    "giph": giph.giph_view,
    "doppler": doppler.doppler_view,
}
# Fixed groups share a device.
_SHARED = ("published hsdag", "published hsdag, three steps", "hierarchical, random groups")
# Parts of the parameters that nothing depends on: drawn, not learned.
_UNREACHED = {
    "hierarchical, random groups": ("seed",),
}
NUM_SAMPLES = 512


def _batched(name: str, graph: OpGraph, **options: Any) -> jraph.GraphsTuple:
    """The graphs carry what Placeto reads, unless the policy reads something else."""
    view = _VIEWS.get(name, placeto.placeto_view)
    return helpers.batched(graph, costed=True, view=view, **options)


every_policy = pytest.mark.parametrize("name", POLICIES)
every_policy_of_devices = pytest.mark.parametrize(
    "name", [name for name in POLICIES if name not in WITHOUT_REPLACEMENT]
)
every_one_step_policy = pytest.mark.parametrize("name", ONE_STEP)


class _Answers(NamedTuple):
    """What a policy says about one graph."""

    drawn: Sample
    again: LogProb  # of what was drawn


def _ask(policy: Policy, params: Params, key: Array, graph: jraph.GraphsTuple) -> _Answers:
    drawn = policy.sample(params, key, graph, NUM_SAMPLES)
    return _Answers(drawn, policy.log_prob(params, graph, drawn))


@functools.cache
def _compiled(name: str) -> Callable[[Params, Array, jraph.GraphsTuple], _Answers]:
    """One compilation of everything, shared by all tests on graphs of one bucket."""
    return jax.jit(functools.partial(_ask, POLICIES[name]()))


@functools.cache
def _params(name: str) -> Params:
    """Parameters far enough from the initial ones that devices are not equally likely."""
    graph = _batched(name, helpers.diamond())
    params = base.initial_params(POLICIES[name]().init, jax.random.key(0), graph)
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(1)
    # The samples must meet every outcome; the 64 hidden units of the grouper spread its logits.
    scale = 0.07 if name in LATENT else 0.2
    moved = [leaf + scale * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(tree, moved)


def _answers(name: str, graph: jraph.GraphsTuple, seed: int = 2) -> _Answers:
    return _compiled(name)(_params(name), jax.random.key(seed), graph)


class _Distribution(NamedTuple):
    """The distinct outcomes among many samples of a tiny graph."""

    outcome: np.ndarray  # [K, N]; with latents [K, 2 N], these first
    log_prob: np.ndarray  # [K]
    entropy: np.ndarray  # [K]


def _tiny(name: str) -> OpGraph:
    """With latents there are more outcomes, so the graph is smaller."""
    return helpers.chain(3) if name in LATENT else helpers.diamond()


def _outcomes(drawn: Sample, num_ops: int) -> np.ndarray:
    decided = (
        drawn.placement if drawn.latent is None else jnp.stack((drawn.latent, drawn.placement), 2)
    )
    return np.asarray(decided[..., :num_ops]).reshape(len(drawn.placement), -1)


def _distribution(name: str, graph: jraph.GraphsTuple) -> _Distribution:
    drawn = [_answers(name, graph, seed).drawn for seed in range(10, 14)]
    drawn = jax.tree.map(lambda *batches: np.concatenate(batches), *drawn)
    outcome, first = np.unique(
        _outcomes(drawn, graph.nodes["mask"].sum()), axis=0, return_index=True
    )
    return _Distribution(outcome, drawn.log_prob[first, 0], drawn.entropy[first, 0])


def _deciding_steps(name: str, num_ops: int) -> int:
    """Placeto's steps are operations, GiPH's the start and two moves for each operation."""
    return {"placeto": num_ops, "giph": 1 + 2 * num_ops}.get(name, STEPS.get(name, 1))


def _close(actual: object, expected: object) -> None:
    """Floats up to rounding; whole numbers exactly."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if np.issubdtype(np.asarray(e).dtype, np.floating):
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)
        else:
            np.testing.assert_array_equal(a, e)


@every_policy
def test_shapes_and_types(name):
    drawn, again = _answers(name, _batched(name, helpers.diamond()))
    steps = STEPS.get(name, 1)
    assert drawn.placement.shape == (NUM_SAMPLES, steps, 16)
    assert drawn.placement.dtype == jnp.int32
    for quantity in (drawn.log_prob, drawn.entropy, *again[:3]):
        assert quantity.shape == (NUM_SAMPLES, steps)
        assert quantity.dtype == jnp.float32
    assert set(np.unique(drawn.placement)) <= {0, 1}
    if name in LATENT:
        assert drawn.latent.shape == drawn.placement.shape
        assert drawn.latent.dtype == jnp.int32
    elif name not in _OTHER_LATENT:
        assert drawn.latent is None


@every_policy
def test_log_prob_of_a_sample_is_the_one_that_came_with_it(name):
    graph = _batched(name, helpers.random_dag(np.random.default_rng(0), 9, edge_probability=0.2))
    drawn, again = _answers(name, graph)
    _close((again.log_prob, again.entropy), (drawn.log_prob, drawn.entropy))
    assert np.std(drawn.log_prob) > 0.01


@every_policy
def test_keys_decide_the_draw(name):
    graph = _batched(name, helpers.diamond())
    first, same, other = (_answers(name, graph, seed).drawn.placement for seed in (3, 3, 4))
    assert (first == same).all()
    assert (first != other).any()
    assert (first != first[0]).any()


@every_policy_of_devices
def test_padding_changes_nothing(name):
    num_ops = 9
    graph = helpers.random_dag(np.random.default_rng(1), num_ops, edge_probability=0.2)
    tight = _answers(name, _batched(name, graph))
    wide = _answers(name, _batched(name, graph, num_nodes=37, num_edges=50))
    steps = _deciding_steps(name, num_ops)
    decided = [(answer.drawn.placement, answer.drawn.latent) for answer in (wide, tight)]
    _close(*jax.tree.map(lambda x: x[:, :steps, :num_ops] if x.ndim > 2 else x[:, :steps], decided))
    _close(*(jax.tree.map(lambda x: x[:, :steps], (a.drawn[1:3], a.again)) for a in (wide, tight)))


# Without jit every operation is compiled alone, which takes seconds for each policy.
EAGER = [
    name
    if name in ("published hsdag", "colocrl")
    else pytest.param(name, marks=pytest.mark.nightly)
    for name in POLICIES
]


@pytest.mark.parametrize("name", EAGER)
def test_jit_changes_nothing(name):
    graph = _batched(name, helpers.diamond())
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
        counted.trace(_params(name), _batched(name, graph))
    assert len(traces) == 1
    counted.trace(_params(name), _batched(name, helpers.chain(17)))
    assert len(traces) == 2


@every_policy
def test_devices_that_cannot_run_an_operation_are_never_chosen(name):
    allowed = np.ones((4, 2), bool)
    allowed[0, 1] = allowed[3, 1] = False
    drawn, _ = _answers(name, _batched(name, helpers.diamond(), allowed=allowed))
    assert (drawn.placement[..., [0, 3]] == 0).all()
    assert np.isfinite(drawn.log_prob).all()


@every_policy
def test_a_forced_placement_is_certain(name):
    only_second = np.tile([False, True], (4, 1))
    drawn, _ = _answers(name, _batched(name, helpers.diamond(), allowed=only_second))
    assert (drawn.placement[..., :4] == 1).all()
    if name not in LATENT:
        np.testing.assert_allclose(drawn.log_prob, 0.0, atol=1e-6)
        np.testing.assert_allclose(drawn.entropy, 0.0, atol=1e-6)


@every_one_step_policy
@pytest.mark.parametrize("restricted", [False, True])
def test_probabilities_of_all_outcomes_sum_to_one(name, restricted):
    graph = _tiny(name)
    allowed = np.ones((graph.num_ops, 2), bool)
    allowed[1, 0] = not restricted
    log_prob = _distribution(name, _batched(name, graph, allowed=allowed)).log_prob
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-4)
    assert restricted or np.ptp(log_prob) > 0.05


@pytest.mark.parametrize("name", [name for name in ONE_STEP if name not in _SHARED])
def test_policies_that_place_operations_can_reach_every_placement(name):
    graph = _tiny(name)
    outcome = _distribution(name, _batched(name, graph)).outcome
    reached = np.unique(outcome[:, -graph.num_ops :], axis=0)
    np.testing.assert_array_equal(reached, helpers.all_placements(graph.num_ops, 2))


@every_one_step_policy
def test_samples_are_as_frequent_as_their_probability_says(name):
    graph = _tiny(name)
    outcome, log_prob, _ = _distribution(name, _batched(name, graph))
    drawn = _outcomes(_answers(name, _batched(name, graph), seed=5).drawn, graph.num_ops)
    counts = (drawn[:, None] == outcome).all(axis=-1).sum(axis=0)
    expected = NUM_SAMPLES * np.exp(log_prob)
    deviation = np.sqrt(expected * (1 - np.exp(log_prob)))
    assert (np.abs(counts - expected) < 4 * deviation + 1e-3).all()


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in _OTHER_CHOICES])
def test_choices_are_those_that_the_entropy_is_of(name):
    graph = helpers.fork_join(3)
    _, again = _answers(name, _batched(name, graph))
    assert (again.entropy <= again.choices * np.log(2) + 1e-4).all()
    each_operation = 1 if name == "placeto" else STEPS.get(name, 1)
    chosen = again.choices.sum(axis=1)
    assert (chosen >= 1).all()
    assert (chosen <= each_operation * graph.num_ops).all()
    if name not in (*_SHARED, *LATENT):
        assert (chosen == each_operation * graph.num_ops).all()


@pytest.mark.parametrize("name", [name for name in ONE_STEP if name not in LATENT])
def test_entropy_is_that_of_the_distribution(name):
    """For one that decides step by step, given what it drew: right on average over the draws."""
    _, log_prob, entropy = _distribution(name, _batched(name, _tiny(name)))
    probability = np.exp(log_prob)
    assert probability @ entropy == pytest.approx(-(probability * log_prob).sum(), rel=1e-4)


@every_policy
def test_gradients_are_finite_and_reach_every_part(name):
    policy, rng = POLICIES[name](), np.random.default_rng(4)
    graph = helpers.random_dag(rng, 9, edge_probability=0.2)
    free, forced = np.ones((9, 2), bool), rng.random((9, 2)) < 0.6  # some are allowed nowhere
    drawn = _answers(name, _batched(name, graph)).drawn

    @jax.jit
    @jax.grad
    def gradient(params: Params, batched: jraph.GraphsTuple, drawn: Sample) -> Array:
        now = policy.log_prob(params, batched, drawn)
        log_prob = now.log_prob if now.shared is None else now.log_prob + now.shared.log_prob
        return (log_prob * jnp.linspace(-1, 1, NUM_SAMPLES)[:, None] + now.entropy).mean()

    everywhere = gradient(_params(name), _batched(name, graph, allowed=free), drawn)
    somewhere = gradient(_params(name), _batched(name, graph, allowed=forced), drawn)
    for leaf in (*jax.tree.leaves(everywhere), *jax.tree.leaves(somewhere)):
        assert np.isfinite(leaf).all()
    for part in _UNREACHED.get(name, ()):
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(everywhere.pop(part)))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(everywhere))


@every_policy
@pytest.mark.parametrize("num_ops", [1, 15])
def test_a_single_operation_and_a_full_bucket(name, num_ops):
    drawn, _ = _answers(name, _batched(name, helpers.chain(num_ops)))
    assert np.isfinite(drawn.log_prob).all()
    if name in _OTHER_LATENT:  # a single operation has one move; most styles are almost greedy
        assert (drawn.entropy >= 0).all()
        assert num_ops == 1 or drawn.entropy[0].max() > 0
        return
    assert (drawn.entropy[:, : _deciding_steps(name, num_ops)] > 0).all()
    assert (drawn.entropy < num_ops * np.log(2) + 1e-4).all()
