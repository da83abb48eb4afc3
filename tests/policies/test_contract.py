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
        num_devices=2, hidden_size=8, levels=32, episode_steps=3
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
STEPS = {"scheduler": 2, "published hsdag": 3, "placeto": 16, "giph": 32}
# Of this policy a sample is one of many moves, which the samples before it do not take. The last
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
_SHARED = ("published hsdag", "hierarchical, random groups")
# Parts of the parameters that nothing depends on: drawn, not learned.
_UNREACHED = {"hierarchical, random groups": ("seed",)}
# The samples of one-step policies must meet every outcome; steps take time.
NUM_SAMPLES = {name: 16 if name in STEPS else 512 for name in POLICIES}

every_policy = pytest.mark.parametrize("name", POLICIES)


def _batched(name: str, graph: OpGraph, **options: Any) -> jraph.GraphsTuple:
    """The graphs carry what Placeto reads, unless the policy reads something else."""
    view = _VIEWS.get(name, placeto.placeto_view)
    return helpers.batched(graph, costed=True, view=view, **options)


class _Answers(NamedTuple):
    """Samples of a policy on one graph."""

    drawn: Sample
    again: LogProb  # of these samples
    gradient: Params  # of a weighted sum of the log-probabilities, and of the entropy


@functools.cache
def _compiled(name: str) -> Callable[[Params, Array, jraph.GraphsTuple], _Answers]:
    """One compilation of all functions, shared by all tests on graphs of one bucket."""
    policy, num_samples = POLICIES[name](), NUM_SAMPLES[name]

    def ask(params: Params, key: Array, graph: jraph.GraphsTuple) -> _Answers:
        drawn = policy.sample(params, key, graph, num_samples)

        def objective(params: Params) -> tuple[Array, LogProb]:
            again = policy.log_prob(params, graph, drawn)
            shared = 0.0 if again.shared is None else again.shared.log_prob
            weighted = (again.log_prob + shared) * jnp.linspace(-1, 1, num_samples)[:, None]
            return (weighted + again.entropy).mean(), again

        gradient, again = jax.grad(objective, has_aux=True)(params)
        return _Answers(drawn, again, gradient)

    return jax.jit(ask)


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


def _random_graph(seed: int) -> OpGraph:
    return helpers.random_dag(np.random.default_rng(seed), 9, edge_probability=0.2)


def _deciding_steps(name: str, num_ops: int) -> int:
    """Placeto's steps are operations, GiPH's the start and two moves for each operation."""
    return {"placeto": num_ops, "giph": 1 + 2 * num_ops}.get(name, STEPS.get(name, 1))


def _assert_close(actual: object, expected: object) -> None:
    """Floats up to rounding; whole numbers exactly."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if np.issubdtype(np.asarray(e).dtype, np.floating):
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)
        else:
            np.testing.assert_array_equal(a, e)


@every_policy
def test_samples(name):
    graph = _batched(name, helpers.diamond())
    drawn, again, _ = _answers(name, graph)
    num_samples, steps = NUM_SAMPLES[name], STEPS.get(name, 1)
    assert drawn.placement.shape == (num_samples, steps, 16)
    assert drawn.placement.dtype == jnp.int32
    for quantity in (drawn.log_prob, drawn.entropy, *again[:3]):
        assert quantity.shape == (num_samples, steps)
        assert quantity.dtype == jnp.float32
    assert set(np.unique(drawn.placement)) <= {0, 1}
    if name in LATENT:
        assert drawn.latent.shape == drawn.placement.shape
        assert drawn.latent.dtype == jnp.int32
    elif name not in _OTHER_LATENT:
        assert drawn.latent is None
    assert (drawn.placement == _answers(name, graph).drawn.placement).all()
    assert (drawn.placement != _answers(name, graph, seed=3).drawn.placement).any()
    assert (drawn.placement != drawn.placement[0]).any()


@every_policy
def test_log_prob_matches_sample(name):
    drawn, again, _ = _answers(name, _batched(name, _random_graph(0)))
    _assert_close((again.log_prob, again.entropy), (drawn.log_prob, drawn.entropy))
    assert np.std(drawn.log_prob) > 0.01


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in WITHOUT_REPLACEMENT])
def test_padding_changes_nothing(name):
    graph, num_ops = _random_graph(1), 9
    tight = _answers(name, _batched(name, graph)).drawn
    sample = jax.jit(POLICIES[name]().sample, static_argnums=3)
    padded = _batched(name, graph, num_nodes=37, num_edges=50)
    wide = sample(_params(name), jax.random.key(2), padded, NUM_SAMPLES[name])
    steps = _deciding_steps(name, num_ops)
    _assert_close(
        *(
            jax.tree.map(lambda x: x[:, :steps, :num_ops] if x.ndim > 2 else x[:, :steps], drawn)
            for drawn in (wide, tight)
        )
    )


@every_policy
def test_unsupported_devices_are_avoided(name):
    allowed = np.ones((4, 2), bool)
    allowed[0, 1] = allowed[3, 1] = False
    drawn = _answers(name, _batched(name, helpers.diamond(), allowed=allowed)).drawn
    assert (drawn.placement[..., [0, 3]] == 0).all()
    assert np.isfinite(drawn.log_prob).all()
    only_second = np.tile([False, True], (4, 1))
    forced = _answers(name, _batched(name, helpers.diamond(), allowed=only_second)).drawn
    assert (forced.placement[..., :4] == 1).all()
    if name not in LATENT:
        np.testing.assert_allclose(forced.log_prob, 0.0, atol=1e-6)
        np.testing.assert_allclose(forced.entropy, 0.0, atol=1e-6)


@pytest.mark.parametrize("name", ONE_STEP)
def test_probabilities(name):
    """They sum to one, agree with frequencies and entropies, and every placement has one."""
    graph = helpers.chain(3) if name in LATENT else helpers.diamond()

    def outcomes(drawn: Sample) -> np.ndarray:
        """The decisions [B, N], of latents and placements [B, 2 N]."""
        parts = [] if drawn.latent is None else [drawn.latent]
        both = [part[:, 0, : graph.num_ops] for part in (*parts, drawn.placement)]
        return np.concatenate(both, axis=1)

    for restricted in (True, False):
        allowed = np.ones((graph.num_ops, 2), bool)
        allowed[1, 0] = not restricted
        batched = _batched(name, graph, allowed=allowed)
        draws = [_answers(name, batched, seed).drawn for seed in range(10, 14)]
        drawn = jax.tree.map(lambda *batches: np.concatenate(batches), *draws)
        outcome, first = np.unique(outcomes(drawn), axis=0, return_index=True)
        log_prob, entropy = drawn.log_prob[first, 0], drawn.entropy[first, 0]
        probability = np.exp(log_prob)
        assert probability.sum() == pytest.approx(1.0, abs=1e-4)
    assert np.ptp(log_prob) > 0.05
    if name not in _SHARED:
        reached = np.unique(outcome[:, -graph.num_ops :], axis=0)
        np.testing.assert_array_equal(reached, helpers.all_placements(graph.num_ops, 2))
    if name not in LATENT:  # given the choices before, so right on average
        assert probability @ entropy == pytest.approx(-(probability * log_prob).sum(), rel=1e-4)
    others = outcomes(_answers(name, batched, seed=5).drawn)
    counts = (others[:, None] == outcome).all(axis=-1).sum(axis=0)
    expected = len(others) * probability
    deviation = np.sqrt(expected * (1 - probability))
    assert (np.abs(counts - expected) < 4 * deviation + 1e-3).all()


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in _OTHER_CHOICES])
def test_number_of_choices(name):
    graph = helpers.fork_join(3)
    again = _answers(name, _batched(name, graph)).again
    assert (again.entropy <= again.choices * np.log(2) + 1e-4).all()
    each_operation = 1 if name == "placeto" else STEPS.get(name, 1)
    chosen = again.choices.sum(axis=1)
    assert (chosen >= 1).all()
    assert (chosen <= each_operation * graph.num_ops).all()
    if name not in (*_SHARED, *LATENT):
        assert (chosen == each_operation * graph.num_ops).all()


@every_policy
def test_gradients(name):
    graph = _random_graph(4)
    everywhere = _answers(name, _batched(name, graph)).gradient
    forced = np.random.default_rng(4).random((9, 2)) < 0.6  # some are allowed nowhere
    somewhere = _answers(name, _batched(name, graph, allowed=forced)).gradient
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((everywhere, somewhere)))
    for part in _UNREACHED.get(name, ()):
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(everywhere.pop(part)))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(everywhere))


@every_policy
def test_smallest_and_largest_graphs(name):
    """A single operation and a full bucket, which share one compilation."""
    for num_ops in (1, 15):
        drawn = _answers(name, _batched(name, helpers.chain(num_ops))).drawn
        assert np.isfinite(drawn.log_prob).all()
        if name in _OTHER_LATENT:  # a single operation has one move; most styles are almost greedy
            assert (drawn.entropy >= 0).all()
            assert num_ops == 1 or drawn.entropy[0].max() > 0
        else:
            assert (drawn.entropy[:, : _deciding_steps(name, num_ops)] > 0).all()
            assert (drawn.entropy < num_ops * np.log(2) + 1e-4).all()
    assert _compiled(name)._cache_size() == 1
