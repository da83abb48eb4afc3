"""The published network against a plain transcription of its description, `reference_hsdag`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.graphs import coarsen
from placement.graphs.features import node_features
from placement.learning import base, reinforce
from placement.policies import graph_parsing, hsdag_published
from placement.types import LogProb, Params, Policy, Sample
from tests import helpers
from tests.policies import reference_hsdag as reference

pytestmark = pytest.mark.slow

STEPS, HIDDEN = 3, 8
NODES, EDGES = 16, 24  # padded
# What the two variants say of the network, and the same of the reference.
VARIANTS = hsdag_published.VARIANTS
OF_REFERENCE: dict[str, dict[str, Any]] = {
    "paper": {"threshold": 0.5, "inside": False},
    "released": {"threshold": 0.0, "inside": True},
}
GRAPHS = {
    "fork": lambda: helpers.fork_join(3, 2),
    "random": lambda: helpers.random_dag(np.random.default_rng(5), 9, edge_probability=0.25),
}
every_case = pytest.mark.parametrize(
    ("variant", "name"), [(variant, name) for variant in VARIANTS for name in GRAPHS]
)


class _Compiled(NamedTuple):
    """A variant's policy, whose functions are compiled once for both graphs."""

    policy: Policy
    sample: Callable[..., Sample]
    log_prob: Callable[..., LogProb]
    gradient: Callable[..., Params]  # of the log-probabilities' weighted sum


class _Case(NamedTuple):
    """A variant on a graph, in float64."""

    graph: jraph.GraphsTuple
    params: Params
    drawn: Sample  # of two episodes
    steps: list[list[reference.Step]]  # of each
    edges: list[tuple[int, int]]


def _wide(tree: Any) -> Any:
    return jax.tree.map(
        lambda x: np.asarray(x, np.float64 if x.dtype == np.float32 else x.dtype), tree
    )


def _arguments(variant: str) -> dict[str, Any]:
    return {key: value for key, value in VARIANTS[variant].policy.items() if key != "features"}


def _keep(seeds: np.ndarray, graph: jraph.GraphsTuple, step: int) -> reference.Keep:
    shape = len(graph.nodes["mask"]), HIDDEN

    def kept(level: int, layer: int) -> np.ndarray:
        key = jax.random.fold_in(jax.random.key(seeds[step]), level)
        word = np.asarray(jax.random.bits(key, shape, jnp.uint32))[graph.nodes["mask"]]
        return (word & 0xFFFF if layer == 0 else word >> 16) >= int(0.2 * 2**16)

    return kept


@functools.cache
def _compiled(variant: str) -> _Compiled:
    policy = hsdag_published.make(
        num_devices=3, hidden_size=HIDDEN, episode_steps=STEPS, **_arguments(variant)
    )

    def weighted(
        params: Params, graph: jraph.GraphsTuple, drawn: Sample, weight: jax.Array
    ) -> jax.Array:
        return (weight * policy.log_prob(params, graph, drawn).log_prob).sum()

    return _Compiled(
        policy,
        jax.jit(policy.sample, static_argnums=3),
        jax.jit(policy.log_prob),
        jax.jit(jax.grad(weighted)),
    )


@functools.cache
def _case(variant: str, name: str) -> _Case:
    op_graph = GRAPHS[name]()
    edges = sorted(set(zip(op_graph.senders.tolist(), op_graph.receivers.tolist(), strict=True)))
    with jax.enable_x64(True):
        compiled = _compiled(variant)
        graph = _wide(helpers.batched(op_graph, 3, num_nodes=NODES, num_edges=EDGES))
        params = _moved(base.initial_params(compiled.policy.init, jax.random.key(0), graph))
        drawn = compiled.sample(params, jax.random.key(1), graph, 2)
        drawn = jax.tree.map(np.asarray, drawn)
        case = _Case(graph, params, drawn, [], edges)
        for episode in range(2):
            case.steps.append(_episode(variant, case, params, episode))
    return case


def _moved(params: Params) -> Params:
    """Parameters far enough from the initial ones that biases and scales count."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: np.asarray(x, float) + 0.2 * rng.normal(size=x.shape), params)


def _episode(
    variant: str, case: _Case, params: Params, episode: int, **more: Any
) -> list[reference.Step]:
    num_ops = max(max(ends) for ends in case.edges) + 1
    features = case.graph.nodes["features"][:num_ops]
    if variant == "released":
        more["keep"] = functools.partial(_keep, case.drawn.latent[episode], case.graph)
    return reference.episode(
        params, features, case.edges, steps=STEPS, **OF_REFERENCE[variant], **more
    )


@every_case
def test_groups_and_probabilities_are_those_of_the_reference(variant, name):
    case = _case(variant, name)
    with jax.enable_x64(True):
        again = _compiled(variant).log_prob(case.params, case.graph, case.drawn)
    for episode, steps in enumerate(case.steps):
        for t, step in enumerate(steps):
            placement = case.drawn.placement[episode, t]
            for group in step.groups:
                assert len({int(placement[op]) for op in group}) == 1
            assert again.choices[episode, t] == len(step.groups)
            for found in (case.drawn, again):
                expected = reference.log_prob(step, placement)
                np.testing.assert_allclose(found.log_prob[episode, t], expected, rtol=1e-9)
                entropy = -(np.exp(step.log_probs) * step.log_probs).sum()
                np.testing.assert_allclose(found.entropy[episode, t], entropy, rtol=1e-9)


@every_case
def test_the_case_is_worth_comparing(variant, name):
    """Several levels, groups with edges that none kept, and as released masks of their own."""
    levels = [step.levels for steps in _case(variant, name).steps for step in steps]
    assert max(map(len, levels)) >= 3
    inside, kept = zip(*(_weighing(level) for of_step in levels for level in of_step), strict=True)
    assert sum(inside) > sum(kept) > 0
    first, second = (steps[0].levels[0].embedding for steps in _case(variant, name).steps)
    assert np.allclose(first, second) == (variant == "paper")


def _weighing(level: reference.Level) -> tuple[int, int]:
    """How many edges are inside its groups, and how many of them were kept."""
    operations = [tuple(min(level.groups[g]) for g in ends) for ends in level.edges]
    inside = [e for e, ends in enumerate(operations) if _together(ends, level.merged)]
    return len(inside), len(set(inside) & set(level.kept_edges))


def _together(operations: tuple[int, ...], groups: reference.Groups) -> bool:
    return any(set(operations) <= group for group in groups)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _level(ends, score, mask, embedding, threshold, inside):
    """One level of a parse, of padded arrays."""
    edges = graph_parsing.Edges(*ends, mask)
    candidates = edges._replace(mask=mask & (score >= threshold))
    kept_end = graph_parsing.find_highest_ends(jnp.tile(score, 2), candidates, NODES)
    component = graph_parsing.connect(kept_end, edges)
    root = jax.ops.segment_min(jnp.arange(NODES), component, NODES)[component].astype(jnp.int32)
    pooled = graph_parsing.pool(embedding, score, edges, kept_end, root, inside=inside)
    kept_edge = jnp.where(kept_end < 2 * EDGES, kept_end % EDGES, EDGES)
    return kept_edge, root, pooled


@every_case
def test_kept_edges_and_pooled_embeddings_are_those_of_the_reference(variant, name):
    case = _case(variant, name)
    threshold, inside = OF_REFERENCE[variant]["threshold"], OF_REFERENCE[variant]["inside"]
    for level in case.steps[0][0].levels:
        if not level.edges:
            continue
        count, num_edges = level.embedding.shape[0], len(level.edges)
        ends = np.pad(np.array(level.edges, np.int32), ((0, EDGES - num_edges), (0, 0)))
        score = np.pad(level.score, (0, EDGES - num_edges))
        embedding = np.pad(level.embedding, ((0, NODES - count), (0, 0)))
        mask = np.arange(EDGES) < num_edges
        with jax.enable_x64(True):
            edge, root, pooled = _level(ends.T, score, mask, embedding, threshold, inside)
        expected = [EDGES if e is None else e for e in level.kept_edges]
        assert edge[:count].tolist() == expected
        assert edge[count:].tolist() == [EDGES] * (NODES - count)
        roots = sorted(set(root[:count].tolist()))
        assert len(roots) == len(level.merged)
        np.testing.assert_allclose(pooled[np.array(roots)], level.pooled, rtol=1e-12)


@every_case
def test_the_gradient_is_that_of_the_reference(variant, name):
    """By finite differences, in a random direction of each part; states are constants if detached.

    Kept edges are not differentiated, and do not change on so short a way.
    """
    case = _case(variant, name)
    weight = np.random.default_rng(2).normal(size=case.drawn.log_prob.shape)

    def by_reference(params: Params) -> float:
        total = 0.0
        for episode, base_steps in enumerate(case.steps):
            detached = [step.state for step in base_steps] if variant == "released" else None
            steps = _episode(variant, case, params, episode, states=detached)
            for t, step in enumerate(steps):
                assert step.groups == base_steps[t].groups
                total += weight[episode, t] * reference.log_prob(
                    step, case.drawn.placement[episode, t]
                )
        return total

    with jax.enable_x64(True):
        gradient = _compiled(variant).gradient(case.params, case.graph, case.drawn, weight)
        gradient = jax.device_get(gradient)
    rng = np.random.default_rng(3)
    for part in case.params:
        direction = jax.tree.map(lambda x: rng.normal(size=x.shape), case.params[part])
        products = jax.tree.map(lambda g, d: (g * d).sum(), gradient[part], direction)
        slope = sum(jax.tree.leaves(products))
        there, back = (
            by_reference(case.params | {part: _along(case.params[part], direction, sign * 1e-6)})
            for sign in (1, -1)
        )
        assert slope == pytest.approx((there - back) / 2e-6, rel=1e-5, abs=1e-6), part
        assert abs(slope) > 1e-3, part


def _along(params: Params, direction: Params, far: float) -> Params:
    return jax.tree.map(lambda x, d: x + far * d, params, direction)


def test_the_released_features_are_those_of_the_reference():
    """Of operations that were merged from several, with parallel edges and various shapes."""
    rng = np.random.default_rng(4)
    graph = helpers.random_dag(rng, 30, edge_probability=0.1)
    shapes = [tuple(rng.integers(1, 50, rng.integers(0, 7)).tolist()) for _ in range(30)]
    merged = coarsen.coarsen(dataclasses.replace(graph, output_shapes=tuple(shapes))).graph
    assert 10 < merged.num_ops < 30
    assert any(len(set(types)) > 1 for types in merged.member_types)
    blocks = VARIANTS["released"].policy["features"].split("+")
    expected = reference.features(merged)
    np.testing.assert_allclose(node_features(merged, blocks), expected, rtol=1e-5, atol=1e-6)


def test_the_released_update_takes_one_number_times_all_log_probabilities():
    """The rewards, discounted backwards: at 0.95 of what is later; then their sum."""
    policy = helpers.episodic_policy(STEPS)
    settings = dict(VARIANTS["released"].learner)
    assert settings.pop("algorithm") == "reinforce"
    learner = reinforce.make_learner(policy, base.Settings(**settings))
    graph = helpers.batched(helpers.diamond())
    state, drawn = learner.sample(learner.init(jax.random.key(0), graph), graph)
    _, metrics = learner.update(state, graph, drawn, jnp.array([[2.0, 4.0, 1e10]]), 1.0)
    third = 1e-10
    second = 0.25 + 0.95 * third
    first = 0.5 + 0.95 * second
    expected = -(first + second + third) * float(drawn.log_prob.mean())
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)


def test_padding_changes_no_mask():
    policy, draw, *_ = _compiled("released")
    graph = GRAPHS["random"]()
    tight, wide = (
        helpers.batched(graph, 3, **sizes) for sizes in ({}, {"num_nodes": 37, "num_edges": 60})
    )
    params = base.initial_params(policy.init, jax.random.key(0), tight)
    found, padded = (draw(params, jax.random.key(1), of, 4) for of in (tight, wide))
    np.testing.assert_array_equal(padded.latent, found.latent)
    np.testing.assert_array_equal(padded.placement[..., :9], found.placement[..., :9])
    np.testing.assert_allclose(padded.log_prob, found.log_prob, rtol=1e-4)
    assert len(np.unique(found.log_prob)) > 4  # masks of their own
