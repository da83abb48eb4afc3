import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.errors import UserError
from placement.learning import base, reinforce, trainer
from placement.methods import learned
from placement.policies import colocrl, hierarchical
from placement.types import Params, Policy, Sample
from tests import helpers

GRAPH = helpers.batched(helpers.diamond())
SMALL = {"num_devices": 2, "hidden_size": 8}


@functools.cache
def _compiled(policy: Policy) -> Callable[..., Sample]:
    return jax.jit(policy.sample, static_argnums=3)


def _draw(policy: Policy, graph: jraph.GraphsTuple = GRAPH) -> Sample:
    """64 samples under initial parameters."""
    key = jax.random.key(0)
    return _compiled(policy)(base.initial_params(policy.init, key, graph), key, graph, 64)


def _shaken(params: Params, seed: int) -> Params:
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + 0.5 * rng.normal(size=x.shape).astype(np.float32), params)


def _pool(group: list[int], num_groups: int, graph: jraph.GraphsTuple = GRAPH):
    return hierarchical.pool(graph, np.array(group + [1] * 12), num_groups)


def test_groups_count_edges_and_members_and_add_up_features():
    """op0 and op2 in group 0, op1 in 2, op3 in 1, none in 3; padding says 1 and is in none."""
    pooled = _pool([0, 2, 0, 1], 4)
    features = GRAPH.nodes["features"]
    edges_to = [[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    edges_from = [[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    summed = [features[0] + features[2], features[3], features[1], np.zeros(5)]
    every = np.concatenate([edges_to, edges_from, [[2], [1], [1], [0]], summed], axis=1)
    np.testing.assert_allclose(
        pooled.embedding, np.sign(every) * np.log1p(np.abs(every)), rtol=1e-6, atol=1e-7
    )
    assert pooled.present.tolist() == [True, True, True, False]


def test_a_group_is_allowed_where_all_its_members_are():
    allowed = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]], bool)
    pooled = _pool([0, 0, 1, 1], 4, helpers.batched(helpers.diamond(), 3, allowed=allowed))
    assert pooled.allowed.astype(int).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    pooled = _pool([0, 1, 0, 1], 2, helpers.batched(helpers.diamond(), 3, allowed=allowed))
    assert pooled.allowed.astype(int).tolist() == [[1, 0, 0], [0, 1, 1]]


def test_operations_that_follow_another_are_in_no_group():
    graph = jax.tree.map(np.copy, GRAPH)
    graph.nodes["mask"][1] = False
    graph.nodes["allowed"][1] = False
    features = graph.nodes["features"]
    pooled = _pool([0, 0, 0, 2], 3, graph)
    np.testing.assert_allclose(
        np.expm1(np.abs(pooled.embedding[:, :7])),
        [[1, 0, 1, 1, 0, 0, 2], [0] * 7, [0, 0, 0, 1, 0, 0, 1]],
        atol=1e-6,
    )
    np.testing.assert_allclose(
        np.expm1(np.abs(pooled.embedding[0, 7:])), np.abs(features[0] + features[2]), rtol=1e-5
    )
    assert pooled.present.tolist() == [True, False, True]
    assert pooled.allowed.tolist() == [[True, True], [False, False], [True, True]]


@functools.cache
def _outcomes() -> Sample:
    """Every grouping of a chain of three in two groups, with every placement of each."""
    found = [
        (group, tuple(devices[g] for g in group))
        for group in itertools.product(range(2), repeat=3)
        for devices in itertools.product(range(2), repeat=2)
    ]
    latent, placement = np.moveaxis(np.array(sorted(set(found)), np.int32), 1, 0)
    padded = [np.pad(part, ((0, 0), (0, 13)))[:, None] for part in (placement, latent)]
    return Sample(padded[0], np.zeros(()), np.zeros(()), padded[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_probabilities_of_all_groups_and_devices_sum_to_one(seed):
    log_prob = _chain_policy()(seed)
    assert len(log_prob) == 6 * 4 + 2 * 2
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-5)
    assert np.ptp(log_prob) > 0.1


@functools.cache
def _chain_policy():
    policy = hierarchical.make(num_groups=2, **SMALL)
    graph = helpers.batched(helpers.chain(3))
    params = base.initial_params(policy.init, jax.random.key(0), graph)

    @jax.jit
    def answers(params: Params, graph: jraph.GraphsTuple):
        return policy.log_prob(params, graph, _outcomes()).log_prob[:, 0]

    return lambda seed: answers(_shaken(params, seed), graph)


@pytest.mark.slow
def test_members_without_a_common_device_take_their_first():
    """All in one group, so that nothing is left to chance."""
    allowed = np.array([[1, 1], [0, 1], [1, 0], [1, 1]], bool)
    graph = helpers.batched(helpers.diamond(), allowed=allowed)
    drawn = _draw(hierarchical.make(num_groups=1, **SMALL), graph)
    assert (drawn.placement[:, 0, :4] == np.array([0, 1, 0, 0])).all()
    np.testing.assert_allclose(drawn.log_prob, 0.0, atol=1e-6)
    np.testing.assert_allclose(drawn.entropy, 0.0, atol=1e-6)


EIGHT = hierarchical.make(num_groups=8, num_devices=2, hidden_size=32)


@functools.cache
def _drawn_of_eight() -> Sample:
    return _draw(EIGHT)


@pytest.mark.slow
def test_empty_groups_cost_nothing():
    """A search starts near the uniform policy: of the devices, each group in use counts alike."""
    drawn = _drawn_of_eight()
    used = np.array([len(set(row)) for row in np.asarray(drawn.latent)[:, 0, :4].tolist()])
    assert len(set(used.tolist())) > 1
    np.testing.assert_allclose(drawn.entropy[:, 0], used * np.log(2), atol=0.05)


@pytest.mark.slow
def test_groups_start_as_slices_of_the_order_if_drawn_together():
    slices = np.repeat(np.arange(3), 4)
    for pull, least, most in ((20.0, 0.9, 1.0), (0.0, 0.0, 0.5)):
        policy = hierarchical.make(num_groups=3, slices=pull, **SMALL)
        latent = _draw(policy, helpers.batched(helpers.chain(12))).latent
        assert least <= (np.asarray(latent)[:, 0, :12] == slices).mean() <= most


@pytest.mark.slow
def test_members_share_their_groups_device():
    drawn = _drawn_of_eight()
    group, device = (np.asarray(x)[:, 0, :4] for x in (drawn.latent, drawn.placement))
    together = group[:, :, None] == group[:, None]
    alike = device[:, :, None] == device[:, None]
    assert together.sum() > 4 * 64  # not only with themselves
    assert alike[together].all()
    assert not alike[~together].all()


def test_random_groups_are_fixed_by_their_seed_alone():
    groups = hierarchical.random_groups(jnp.float32(0), 1000, 8)
    np.testing.assert_array_equal(hierarchical.random_groups(jnp.float32(0), 400, 8), groups[:400])
    assert (hierarchical.random_groups(jnp.float32(1), 1000, 8) != groups).sum() > 800
    assert np.bincount(groups, minlength=8).min() > 90


def test_of_the_grouper_as_many_readers_are_seen_as_are_asked_for():
    for num_readers in (1, 6, 32):
        params, _ = _program(hierarchical.make(num_readers=num_readers, **SMALL))
        kernel = params["grouper"]["params"]["Embedding_0"]["Dense_0"]["kernel"]
        assert kernel.shape == (5 * (1 + num_readers), 64)


@pytest.mark.slow
def test_every_search_draws_random_groups_of_its_own_and_keeps_them():
    policy = hierarchical.make(grouping="random", num_groups=8, **SMALL)
    learner = reinforce.make_learner(policy, base.Settings(num_samples=8))
    seeds = []
    for key in (0, 1):
        state, drawn = learner.sample(learner.init(jax.random.key(key), GRAPH), GRAPH)
        latency_s = np.arange(1.0, 9.0, dtype=np.float32)[:, None]
        after, _ = learner.update(state, GRAPH, drawn, latency_s, 1.0)
        seeds += [state.params["seed"], after.params["seed"]]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


def _program(policy: Policy) -> tuple[Params, str]:
    """Shapes of the parameters, and what sampling computes."""
    params = jax.eval_shape(policy.init, jax.random.key(0), GRAPH)
    sample = jax.make_jaxpr(policy.sample, static_argnums=3)
    return params, str(sample(params, jax.random.key(0), GRAPH, 3))


@pytest.mark.slow
def test_without_groups_the_placer_places_operations_as_colocrl_does():
    of_placer = {"aligned": False, "stay": 1.0}
    policy = hierarchical.make(grouping="none", **SMALL, **of_placer)
    same = colocrl.make(num_devices=2, hidden_size=8, **of_placer)
    assert _program(policy) == _program(same)
    assert _program(policy) != _program(colocrl.make(num_devices=2, hidden_size=8))


def test_the_paper_variant_has_the_constants_of_the_released_code():
    """The learning rate alone is ours; the docstrings say why."""
    assert learned.hyper_parameters("hierarchical:variant=paper") == {
        "num_groups": 0,
        "hidden_size": 512,
        "aligned": False,
        "stay": 0.0,
        "slices": 0.0,
        "num_readers": 6,
        "grouping": "learned",
        "features": "op_type+degrees+fractal+positional+output_shape",
        "algorithm": "reinforce",
        "num_samples": 1,
        "learning_rate": 1e-3,
        "learning_rate_decay": 0.95,
        "reward": "sqrt",
        "baseline": "moving_average",
        "failed": "constant",
        "discount": 0.95,
        "returns": "to_go",
        "entropy_weight": 0.0,
        "entropy_decay_updates": 0,
        "max_grad_norm": 1.0,
    }


@pytest.mark.parametrize(("num_devices", "expected"), [(2, 40), (12, 240), (13, 256)])
def test_the_paper_variant_has_twenty_groups_a_device_and_256_at_most(num_devices, expected):
    method = learned.make("hierarchical:variant=paper", num_devices, False)
    graph = helpers.batched(helpers.chain(300), num_devices)
    params = jax.eval_shape(method.policy.init, jax.random.key(0), graph)
    assert params["grouper"]["params"]["Dense_0"]["bias"].shape == (expected,)
    assert params["grouper"]["params"]["Embedding_0"]["Dense_0"]["bias"].shape == (64,)


@pytest.mark.slow
def test_the_paper_variants_baseline_starts_at_the_failing_signal():
    """Which is 100 times the reference; its reward is -sqrt(100)."""
    method = learned.make("hierarchical:variant=paper,hidden_size=8", 2, False)
    state = method.learner.init(jax.random.key(0), GRAPH)
    assert state.baseline.tolist() == [-10.0]


def test_no_more_groups_are_used_than_there_are_nodes():
    params, _ = _program(hierarchical.make(num_groups=256, **SMALL))
    assert params["grouper"]["params"]["Dense_0"]["bias"].shape == (16,)


def test_only_the_placer_learns_where_groups_are_random():
    params, _ = _program(hierarchical.make(num_groups=2, grouping="random", **SMALL))
    assert set(params) == {"placer", "seed"}


@pytest.mark.slow
def test_it_learns_the_best_placement_of_the_diamond():
    """Which is better than a single device; the groups must come to separate op2 from the rest."""
    costs = helpers.random_costs(np.random.default_rng(3), helpers.diamond(), 2)
    evaluate = helpers.as_problem(helpers.diamond(), costs, "serial").evaluate
    every = helpers.all_placements(4, 2)
    latency_s = np.asarray(evaluate(every))
    policy = hierarchical.make(num_groups=4, **SMALL)
    settings = base.Settings(num_samples=32, learning_rate=0.02, reward="sqrt", entropy_weight=0.4)
    learner = reinforce.make_learner(policy, settings)
    start = trainer.start(learner, jax.random.key(1), GRAPH, evaluate, 4, 2)
    reports = list(trainer.search(learner, GRAPH, evaluate, start, budget=2 + 32 * 160))
    mean_s = [report.records[-1]["mean_s"] for report in reports]
    params = reports[-1].progress.state.params
    preferred = helpers.preferred_placement(policy, params, GRAPH)[:4]
    assert latency_s.min() < 0.7 * latency_s[[0, -1]].min()
    assert mean_s[0] > 1.2 * latency_s.min()
    assert np.mean(mean_s[-16:]) < 1.05 * latency_s.min()
    np.testing.assert_array_equal(preferred, every[latency_s.argmin()])


def test_a_sample_without_groups_is_refused():
    drawn = Sample(np.zeros((1, 1, 16), np.int32), np.zeros((1, 1)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="has no groups"):
        EIGHT.log_prob({}, GRAPH, drawn)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grouping": "fixed"}, "unknown grouping 'fixed'; valid: learned, random, none"),
        ({"num_groups": -1}, "num_groups=-1 is out of range"),
        ({"hidden_size": 3, "grouping": "none"}, "hidden_size=3 cannot be halved"),
    ],
)
def test_impossible_hyper_parameters_are_refused_in_one_line(change, message):
    with pytest.raises(UserError, match=message) as error:
        hierarchical.make(num_devices=2, **change)
    assert "\n" not in str(error.value)
