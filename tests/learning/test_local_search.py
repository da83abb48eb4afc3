"""Local search by a policy's moves: acceptance and restarts, and that improvements get likelier."""

import jax
import jax.numpy as jnp
import numpy as np

from placement.learning import local_search, trainer
from placement.learning.base import Settings, State
from placement.policies.inputs import PolicyInput
from placement.types import LogProb, Policy, Sample
from tests import helpers

NUM_OPS, NUM_SAMPLES = 8, 16
GRAPH = helpers.batched(helpers.chain(NUM_OPS), costed=True)
NODES = len(GRAPH.nodes["mask"])


def _flips() -> Policy:
    """Makes a policy that moves one operation, by learned probabilities, to the other device."""

    def init(key, graph):
        return jnp.zeros(NODES)

    def sample(params, key, graph, num_samples, placements=0):
        log_probs = jax.nn.log_softmax(jnp.where(graph.nodes["mask"], params, -1e9))
        op = jax.random.categorical(key, log_probs, shape=(num_samples,))
        flipped = jnp.where(jnp.arange(NODES) == op[:, None], 1 - placements, placements)
        entropy = jnp.zeros((num_samples, 1))
        return Sample(flipped[:, None], log_probs[op][:, None], entropy, op[:, None])

    def log_prob(params, graph, samples):
        log_probs = jax.nn.log_softmax(jnp.where(graph.nodes["mask"], params, -1e9))
        value = log_probs[samples.latent]
        return LogProb(value, jnp.zeros_like(value), jnp.ones_like(value))

    return Policy(init, sample, log_prob)


def _latency_s(placement: np.ndarray) -> np.ndarray:
    """Rewards operations on the second device; the last one counts for three."""
    return (20.0 - placement[:, :NUM_OPS] @ [*[1.0] * (NUM_OPS - 1), 3.0]).astype(np.float32)


LEARNER = local_search.make_learner(
    _flips(), Settings(num_samples=NUM_SAMPLES, learning_rate=0.1, entropy_weight=0.0)
)


def _current_s(state: State) -> float:
    return float(state.local_search.costs_s[0])


def _current(state: State) -> np.ndarray:
    return np.asarray(state.local_search.placements)[:, 0]


def test_chain_moves_to_best_sample():
    """Steps without gain teach nothing."""
    state = LEARNER.init(jax.random.key(0), GRAPH)
    for _ in range(20):  # until then nothing restarts
        state, samples = LEARNER.sample(state, GRAPH)
        placement = np.asarray(samples.placement[:, 0])
        latency_s = _latency_s(placement)
        after, metrics = LEARNER.update(
            state, GRAPH, samples, latency_s[:, None], jnp.float32(20.0)
        )
        if latency_s.min() <= _current_s(state):
            np.testing.assert_array_equal(_current(after), placement[latency_s.argmin()])
            assert _current_s(after) == latency_s.min()
        else:
            np.testing.assert_array_equal(_current(after), _current(state))
        is_gain = np.isfinite(_current_s(state)) and latency_s.min() < _current_s(state)
        assert (metrics["gained"] > 0) == (metrics["grad_norm"] > 1e-6) == is_gain
        best_s = float(after.local_search.best_latency_s)
        assert best_s == min(state.local_search.best_latency_s, latency_s.min())
        state = after
    assert best_s == 10.0


def test_largest_gain_gets_likelier():
    state, samples = LEARNER.sample(LEARNER.init(jax.random.key(1), GRAPH), GRAPH)
    state = state._replace(local_search=state.local_search._replace(costs_s=jnp.float32([20.0])))
    latency_s = _latency_s(np.asarray(samples.placement[:, 0]))
    after, _ = LEARNER.update(state, GRAPH, samples, latency_s[:, None], jnp.float32(20.0))
    moved = np.unique(samples.latent)
    assert 0 < (moved == NUM_OPS - 1).sum() < len(moved)
    assert after.params[NUM_OPS - 1] > 0
    assert (np.asarray(after.params)[moved[:-1]] < 0).all()


def test_samples_compare_across_draws():
    reward, draw = jnp.float32([1.0, 3.0, 5.0, 7.0]), jnp.int32([0, 0, 1, 2])
    advantage = local_search.subtract_other_draws(reward, draw)
    np.testing.assert_allclose(advantage, [1 - 6, 3 - 6, 5 - 11 / 3, 7 - 3])
    assert (local_search.subtract_other_draws(reward, jnp.zeros(4, int)) == 0).all()


def test_searches_pass_feasibility():
    graph = helpers.chain(NUM_OPS)
    costs = helpers.unit_costs(
        graph,
        compute_s=np.tile([10.0, 1.0], (NUM_OPS, 1)),
        memory_bytes=np.ones(NUM_OPS),
        capacity_bytes=np.array([np.inf, 3.9]),
        transfer_latency_s=np.zeros((2, 2)),
        transfer_s_per_byte=np.zeros((2, 2)),
    )
    problem = helpers.as_problem(graph, costs, "serial")
    policy_input = PolicyInput(GRAPH, np.arange(NUM_OPS))
    starts = helpers.single_starts(problem)
    start = trainer.start(LEARNER, jax.random.key(0), policy_input, problem, starts)
    *_, last = trainer.search(LEARNER, policy_input, problem, start, 500)
    chain = last.progress.state.local_search
    best = np.asarray(chain.best_placement)[:NUM_OPS]
    assert best.sum() == 3
    assert np.isfinite(problem.evaluate(best[None])).all()
    assert last.progress.best_s == float(chain.best_latency_s)
