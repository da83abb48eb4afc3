"""The rules of `placement.testing.check_policy`, for every policy and for broken ones.

docs/POLICIES.md checks its own policy, and tests/docs runs it.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from placement.policies import (
    colocrl,
    distributions,
    doppler,
    giph,
    hierarchical,
    hsdag,
    inputs,
    placeto,
    scheduler,
)
from placement.testing import check_policy
from placement.types import LogProb, Policy, Sample
from tests import helpers


def _read(view: inputs.View) -> Callable[..., inputs.PolicyInput]:
    return functools.partial(inputs.read, view=view)


_COSTS = inputs.read_operations
POLICIES = {
    "hsdag": (hsdag.make, {"levels": 32, "episode_steps": 2}, _COSTS),
    "scheduler": (scheduler.make, {"episode_steps": 2}, _COSTS),
    "placeto": (placeto.make, {"rounds": 3}, _read(placeto.placeto_view)),
    "giph": (giph.make, {"rounds": 2, "embedding_size": 4}, _read(giph.giph_view)),
    "doppler": (doppler.make, {"stages": "simulation"}, _read(doppler.doppler_view)),
    "colocrl": (colocrl.make, {}, _COSTS),
    "hierarchical": (hierarchical.make, {"num_groups": 2}, _COSTS),
    "random groups": (hierarchical.make, {"num_groups": 3, "grouping": "random"}, _COSTS),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", helpers.nightly_except(POLICIES.keys() - {"random groups"}, POLICIES)
)
def test_policies_follow_the_rules(name):
    make, options, read = POLICIES[name]
    policy = make(num_devices=2, hidden_size=8, **options)
    unreached = check_policy(policy, read)
    assert unreached == (["['seed']"] if name == "random groups" else [])


def _linear(rule: str) -> Policy:
    """Makes a policy whose logits are linear in the features; it breaks a rule."""

    def init(key, graph):
        return jax.random.normal(key, (graph.nodes["features"].shape[1], 2))

    def table(params, graph):
        allowed = graph.nodes["allowed"] | (rule == "cannot run")
        return distributions.masked_log_softmax(graph.nodes["features"] @ params, allowed)

    def log_prob(params, graph, sample):
        log_probs, mask = table(params, graph), graph.nodes["mask"]
        each = jax.vmap(distributions.log_prob, in_axes=(None, 0, None))
        value = each(log_probs, sample.placement[:, 0], mask)[:, None]
        entropy = jnp.full_like(value, distributions.entropy(log_probs, mask))
        scale = 1.1 if rule == "not as frequent" else 1.0
        return LogProb(scale * value, entropy, jnp.full_like(value, mask.sum()))

    def sample(params, key, graph, num_samples):
        keys = jax.random.split(jax.random.key(0) if rule == "another key" else key, num_samples)
        order = slice(None, None, -1 if rule == "padding" else 1)
        each = jax.vmap(distributions.sample, in_axes=(0, None))
        placement = each(keys, table(params, graph)[order])[:, None, order]
        value, entropy, _ = log_prob(params, graph, Sample(placement, 0.0, 0.0))
        return Sample(placement, value + (rule == "must equal"), entropy)

    return Policy(init, sample, log_prob)


@pytest.mark.parametrize(
    "rule", ["", "must equal", "cannot run", "another key", "sum to|not as frequent", "padding"]
)
def test_broken_rules_are_named(rule):
    if not rule:
        assert check_policy(_linear(rule)) == []
        return
    with pytest.raises(AssertionError, match=rule):
        check_policy(_linear(rule.split("|")[-1]))
