"""Learning on several graphs at once, and placing another one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.graphs import batching
from placement.instance import Instance
from placement.learning import base, batched, local_search, reinforce, zero_shot
from placement.learning.trainer import Simulator
from placement.policies import hsdag, placeto, scheduler
from tests import helpers

SAMPLES = 16
POLICY = scheduler.make(num_devices=2, hidden_size=8, episode_steps=2)
STACK_POLICY = batched.batch_policy(POLICY)


def _problem(branches: int, length: int) -> Instance:
    graph = helpers.fork_join(branches, length)
    off_diagonal = 1 - np.eye(2, dtype=np.float32)
    costs = helpers.unit_costs(
        graph, transfer_latency_s=0.5 * off_diagonal, transfer_s_per_byte=0 * off_diagonal
    )
    return helpers.as_problem(graph, costs, "makespan")


def _read(problem: Instance):
    return jax.device_get(scheduler.read(problem, 20, 30).graph)


PROBLEMS = [_problem(2, 2), _problem(4, 1), _problem(3, 3)]
GRAPHS = [_read(problem) for problem in PROBLEMS]
PREPARED = [batched.prepare(*pair) for pair in zip(GRAPHS, PROBLEMS, strict=True)]
STACK = batched.stack(PREPARED)
_sample = jax.jit(POLICY.sample, static_argnums=3)


def test_the_reference_is_the_fastest_single_device():
    for problem, reference_s in zip(PROBLEMS, STACK.reference_s, strict=True):
        num_ops = problem.graph.num_ops
        single_s = np.asarray(problem.evaluate(np.zeros((1, num_ops), np.int32)))
        assert reference_s == pytest.approx(single_s[0])


def test_the_reference_moves_unsupported_operations_if_no_device_runs_everything():
    problem = _problem(2, 2)
    compute_s = np.array(problem.costs.compute_s)
    compute_s[[0, 1], [0, 1]] = np.inf  # of 6 and of 12
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    # On the first device: the first operation takes 2 s on the second one, its output 0.5 s to
    # cross, and the other five a second each.
    assert batched.prepare(_read(problem), problem).reference_s == 2 + 0.5 + 5


def test_graphs_of_different_sizes_are_refused():
    ends = helpers.chain(3).senders, helpers.chain(3).receivers
    other = batching.to_graphs_tuple(*ends, np.zeros((3, 0)), np.ones((3, 2), bool))
    other = other._replace(globals=GRAPHS[0].globals)
    with pytest.raises(ValueError, match="2 sizes"):
        batched.stack([PREPARED[0], PREPARED[0]._replace(graphs=other)])


def test_graphs_of_different_objectives_are_refused():
    problem = PROBLEMS[0]._replace(objective="serial")
    with pytest.raises(ValueError, match="2 sizes"):
        batched.stack([PREPARED[0], batched.prepare(_read(problem), problem)])


@pytest.mark.slow
def test_each_graph_of_a_stack_is_placed_as_by_itself():
    params = base.initial_params(STACK_POLICY.init, jax.random.key(0), STACK.graphs)
    key = jax.random.key(1)

    @jax.jit
    def evaluate_policy(params, key, graphs):
        samples = STACK_POLICY.sample(params, key, graphs, SAMPLES)
        return samples, STACK_POLICY.log_prob(params, graphs, samples)

    samples, log_prob = evaluate_policy(params, key, STACK.graphs)
    for i, graph_key in enumerate(jax.random.split(key, len(GRAPHS))):
        rows = slice(i * SAMPLES, (i + 1) * SAMPLES)
        single = _sample(params, graph_key, GRAPHS[i], SAMPLES)
        np.testing.assert_array_equal(samples.placement[rows], single.placement)
        np.testing.assert_allclose(samples.log_prob[rows], single.log_prob, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(log_prob.log_prob[rows], single.log_prob, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_an_update_of_one_graph_is_the_learners_own():
    """Episodes are compared within their graph, so that a stack of one changes nothing."""
    settings = base.Settings(num_samples=SAMPLES)
    single, stacked = (
        reinforce.make_learner(POLICY, settings),
        reinforce.make_learner(STACK_POLICY, settings),
    )
    stack = batched.stack(PREPARED[:1])
    state = single.init(jax.random.key(0), GRAPHS[0])
    samples = _sample(state.params, jax.random.key(1), GRAPHS[0], SAMPLES)
    rng = np.random.default_rng(0)
    latency_s = jnp.asarray(rng.uniform(1, 2, (SAMPLES, 2)), jnp.float32)
    first, _ = single.update(state, GRAPHS[0], samples, latency_s, jnp.float32(1.5))
    second, _ = stacked.update(state, stack.graphs, samples, latency_s, jnp.array([1.5]))
    for a, b in zip(jax.tree.leaves(first.params), jax.tree.leaves(second.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_advantages_compare_samples_of_one_graph_only():
    settings = base.Settings(num_samples=4, discount=0.0)
    state = base.State(None, None, jax.random.key(0), jnp.full(1, jnp.nan), jnp.zeros((), int))
    latency_s = np.array([1.0, 2.0, 3.0, 4.0])
    both = jnp.asarray(np.append(latency_s, 100 * latency_s)[:, None], jnp.float32)
    compute_advantages = jax.jit(base.compute_advantages, static_argnums=0)
    advantage, _ = compute_advantages(settings, state, both, jnp.array([1.0, 100.0]))
    np.testing.assert_allclose(advantage[:4], advantage[4:], rtol=1e-5)
    assert advantage[0] > 0 > advantage[3]


@pytest.mark.slow
def test_learning_makes_the_best_samples_of_all_graphs_better():
    settings = base.Settings(
        *(SAMPLES, 3e-2), baseline="risk_seeking", entropy_weight=0.0, discount=0.0
    )
    learner = reinforce.make_learner(STACK_POLICY, settings)
    state = learner.init(jax.random.key(0), STACK.graphs)
    # The initial policy prefers bad placements and has to unlearn that.
    params = jax.tree.map(lambda leaf: leaf, state.params)
    params["params"]["weights"] = jnp.full(7, -3.0)
    state = state._replace(params=params)
    ratios = []
    for _ in range(40):
        state, metrics = batched.train_step(learner, state, STACK)
        ratios.append(float(metrics["ratio"]))
    assert np.mean(ratios[-5:]) < np.mean(ratios[:5]) - 0.02


@pytest.mark.slow
def test_every_policy_that_reads_costs_learns_on_several_graphs():
    """Checks a step of Placeto against the simulators."""
    policy = batched.batch_policy(placeto.make(num_devices=2, hidden_size=4, rounds=2))
    learner = reinforce.make_learner(policy, base.Settings(num_samples=2, reward="improvement"))
    graphs = [helpers.with_costs(graph, of) for graph, of in zip(GRAPHS, PROBLEMS, strict=True)]
    stack = batched.stack(
        [batched.prepare(jax.device_get(g), p) for g, p in zip(graphs, PROBLEMS, strict=True)]
    )
    state = learner.init(jax.random.key(0), stack.graphs)
    after, metrics = batched.train_step(learner, state, stack)
    _, samples = learner.sample(state, stack.graphs)
    ratios = []
    for i, problem in enumerate(PROBLEMS):
        placements = samples.placement[2 * i : 2 * i + 2, :, : problem.graph.num_ops]
        rows = placements.reshape(-1, problem.graph.num_ops)
        ratios.append(np.min(problem.evaluate(rows)) / stack.reference_s[i])
    assert metrics["ratio"] == pytest.approx(np.exp(np.mean(np.log(ratios))), rel=1e-5)
    assert metrics["evaluated"] == 3 * 2 * 20
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), after.params, state.params)
    assert all(jax.tree.leaves(changed))


@pytest.mark.slow
def test_an_unseen_graph_is_placed_optimally_without_learning():
    params = base.initial_params(POLICY.init, jax.random.key(0), GRAPHS[0])
    problem = _problem(2, 3)
    result = zero_shot.place(
        POLICY.improve,
        params,
        _read(problem),
        Simulator.from_problem(problem),
        jax.random.key(2),
        num_samples=32,
        steps=3,
    )
    value_s = problem.evaluate(result.placement[None, : problem.graph.num_ops])[0]
    assert result.latency_s.shape == (3,)
    assert (np.diff(result.latency_s) <= 0).all()
    assert result.latency_s[-1] == pytest.approx(float(value_s))
    rows = helpers.all_placements(problem.graph.num_ops, 2)
    assert float(value_s) == pytest.approx(float(problem.evaluate(rows).min()))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "max_load"])
def test_local_searches_find_the_optimum_of_each_graph_and_train_one_policy(monkeypatch, objective):
    steps, num_samples = 24, 4  # so few samples that no search ends in its first step
    monkeypatch.setattr(batched, "_LOCAL_SEARCH_STEPS", steps)
    policy = hsdag.make(num_devices=2, hidden_size=8, num_layers=1, levels=3, groups=16)
    settings = base.Settings(num_samples=num_samples, entropy_weight=0.0)
    learner = local_search.make_learner(policy, settings)
    problems = [problem._replace(objective=objective) for problem in PROBLEMS]
    graphs = [hsdag.read(problem, num_nodes=20, num_edges=30).graph for problem in problems]
    prepared = [batched.prepare(*pair) for pair in zip(graphs, problems, strict=True)]
    stack = batched.stack(prepared)
    state = learner.init(jax.random.key(0), graphs[0])
    after, metrics = batched.train_by_local_search(learner, state, stack)
    assert metrics["evaluated"] == steps * num_samples * len(PROBLEMS)
    assert after.updates == steps * len(PROBLEMS)
    assert after.local_search is None
    assert metrics["ratio"] < 1
    rows = helpers.all_placements(problems[0].graph.num_ops, 2)
    best_s = float(np.min(problems[0].evaluate(rows)))
    repeated, repeated_metrics = batched.train_by_local_search(
        learner, state, batched.stack(3 * prepared[:1])
    )
    assert repeated_metrics["ratio"] == pytest.approx(best_s / stack.reference_s[0])
    assert any(
        (x != y).any()
        for x, y in zip(
            jax.tree.leaves(repeated.params), jax.tree.leaves(after.params), strict=True
        )
    )
