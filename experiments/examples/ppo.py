"""PPO on one problem, from top to bottom: `python -m experiments.examples.ppo [PROBLEM] [SECONDS]`.

The environment places one operation after another (`placement.environments`). The policy
is a graph network over the operations, which is computed once per update, and a small network that
scores the devices of the next operation by the earliest finish there. Proximal policy optimisation
(Schulman et al. 2017) trains it with advantages by GAE (Schulman et al. 2016).
"""

import functools
import sys
import time
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from placement import environments, suite
from placement.environments import ProblemArrays
from placement.problem import Problem
from placement.types import Array, Params

PROBLEM = "fork_join_100-makespan"  # of the suite, under makespan
TIME_LIMIT_S = 120.0

# Network.
HIDDEN_SIZE = 32
NUM_ROUNDS = 2  # of messages, in each direction
# PPO.
NUM_EPISODES = 32  # at the same time, for each update
NUM_EPOCHS = 4
NUM_MINIBATCHES = 4
LEARNING_RATE = 1e-3
CLIP = 0.2
DISCOUNT = 1.0  # the only reward is at the end
GAE_LAMBDA = 0.95
VALUE_WEIGHT = 0.5
ENTROPY_WEIGHT = 0.003
MAX_GRADIENT_NORM = 0.5


class Inputs(NamedTuple):
    """The policy's input, made of an observation."""

    op: Array  # int32 []
    allowed: Array  # bool [D]
    devices: Array  # float32 [D, 4]
    progress: Array  # float32 [2]: the share of placed operations, and the schedule's length


class Transition(NamedTuple):
    """A step of an episode."""

    inputs: Inputs
    device: Array  # int32 []
    log_prob: Array  # float32 []
    value: Array  # float32 []: the critic's
    reward: Array  # float32 []


class Network(nn.Module):
    """Encodes operations, and scores devices and states."""

    def setup(self) -> None:
        """Makes the layers."""
        self.embed = nn.Dense(HIDDEN_SIZE)
        self.messages = [nn.Dense(HIDDEN_SIZE) for _ in range(2 * NUM_ROUNDS)]
        self.updates = [nn.Dense(HIDDEN_SIZE) for _ in range(2 * NUM_ROUNDS)]
        self.actor = _mlp(1)
        self.critic = _mlp(1)
        self.finish_weight = self.param("finish_weight", nn.initializers.constant(1.0), ())

    def encode(self, problem: ProblemArrays) -> Array:
        """Returns float32 [N, HIDDEN_SIZE]."""
        graph = problem.graph
        compute_s = jnp.where(jnp.isfinite(problem.compute_s), problem.compute_s, 0.0)
        costs = jnp.log(1e-3 + compute_s / _mean_compute_s(problem))
        hidden = nn.relu(self.embed(jnp.concatenate([graph.nodes["features"], costs], axis=1)))
        ends = (graph.senders, graph.receivers), (graph.receivers, graph.senders)
        for layer, (message, update) in enumerate(zip(self.messages, self.updates, strict=True)):
            source, target = ends[layer % 2]
            sent = jnp.where(graph.edges["mask"][:, None], nn.relu(message(hidden))[source], 0.0)
            received = jax.ops.segment_sum(sent, target, len(hidden))
            count = jax.ops.segment_sum(graph.edges["mask"] * 1.0, target, len(hidden))
            received = received / jnp.maximum(count, 1.0)[:, None]
            hidden += nn.relu(update(jnp.concatenate([hidden, received], axis=1)))
        return hidden

    def decide(self, hidden: Array, inputs: Inputs) -> tuple[Array, Array]:
        """Returns log-probabilities float32 [D] and the value of the state float32 []."""
        op = hidden[inputs.op]
        per_device = jnp.broadcast_to(op, (len(inputs.devices), len(op)))
        scores = self.actor(jnp.concatenate([per_device, inputs.devices], axis=1))[:, 0]
        scores -= self.finish_weight * inputs.devices[:, 0]
        scores = jnp.where(inputs.allowed, scores, -1e9)  # no gradient is nan
        value = self.critic(jnp.concatenate([op, inputs.devices.mean(axis=0), inputs.progress]))[0]
        return jax.nn.log_softmax(scores), value


def _mlp(size: int) -> nn.Module:
    return nn.Sequential([nn.Dense(HIDDEN_SIZE), nn.tanh, nn.Dense(size)])


NETWORK = Network()


def _apply(params: Params, *arrays: Any, method: str) -> Any:
    return NETWORK.apply(params, *arrays, method=method)


def _mean_compute_s(problem: ProblemArrays) -> Array:
    is_op = jnp.arange(len(problem.compute_s)) < problem.num_ops
    is_known = jnp.isfinite(problem.compute_s) & is_op[:, None]
    return jnp.where(is_known, problem.compute_s, 0.0).sum() / is_known.sum()


def make_inputs(state: environments.State) -> Inputs:
    """Observes a state: times are in units of an operation's mean time, and compressed."""
    observation = environments.observe(state)
    unit_s = _mean_compute_s(state.problem)
    finish_s = jnp.where(observation.allowed, observation.finish_s, jnp.inf)
    later_s = jnp.where(observation.allowed, finish_s - finish_s.min(), 0.0)
    compute_s = state.problem.compute_s[observation.op]
    columns = [
        later_s,
        jnp.where(observation.allowed, compute_s, 0.0),
        jnp.maximum(observation.arrival_s - state.free_s, 0.0),
        jnp.maximum(state.free_s - observation.arrival_s, 0.0),
    ]
    length = state.finish_s.max() / state.problem.unit_s
    progress = jnp.stack([state.num_placed / state.problem.num_ops, length])
    devices = jnp.log1p(jnp.stack(columns, axis=1) / unit_s)
    return Inputs(observation.op, observation.allowed, devices, progress)


def play_episode(
    params: Params, key: chex.PRNGKey, problem: ProblemArrays, hidden: Array
) -> tuple[Transition, Array]:
    """Plays one episode.

    Returns:
      N transitions, and the placement int32 [N].
    """

    def advance(
        state: environments.State, key: chex.PRNGKey
    ) -> tuple[environments.State, Transition]:
        inputs = make_inputs(state)
        log_probs, value = _apply(params, hidden, inputs, method="decide")
        device = jax.random.categorical(key, log_probs)
        state, reward = environments.step(state, device)
        return state, Transition(inputs, device, log_probs[device], value, reward)

    keys = jax.random.split(key, len(problem.order))
    state, transitions = jax.lax.scan(advance, environments.reset(problem), keys)
    return transitions, state.placement


def estimate_advantages(transitions: Transition) -> Array:
    """Returns float32 [T], by GAE; nothing follows the last transition."""

    def accumulate(following: tuple[Array, Array], step: Transition) -> tuple[Any, Array]:
        next_value, next_advantage = following
        error = step.reward + DISCOUNT * next_value - step.value
        advantage = error + DISCOUNT * GAE_LAMBDA * next_advantage
        return (step.value, advantage), advantage

    zero = jnp.zeros(())
    return jax.lax.scan(accumulate, (zero, zero), transitions, reverse=True)[1]


def compute_loss(
    params: Params, problem: ProblemArrays, batch: Transition, advantage: Array, target: Array
) -> Array:
    """Returns the clipped loss of M transitions; `advantage` and `target` are float32 [M]."""
    hidden = _apply(params, problem, method="encode")
    decide = functools.partial(_apply, params, hidden, method="decide")
    log_probs, value = jax.vmap(decide)(batch.inputs)
    log_prob = jnp.take_along_axis(log_probs, batch.device[:, None], axis=1)[:, 0]
    ratio = jnp.exp(log_prob - batch.log_prob)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = jnp.square(value - target).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=1).mean()
    return policy_loss + VALUE_WEIGHT * value_loss - ENTROPY_WEIGHT * entropy


OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(MAX_GRADIENT_NORM), optax.adam(LEARNING_RATE, eps=1e-5)
)


class TrainState(NamedTuple):
    """Parameters, and the best placement of all episodes."""

    params: Params
    optimizer: optax.OptState
    best_placement: Array  # int32 [N]
    best_value: Array  # float32 []: in units of the best single device


def init(key: chex.PRNGKey, problem: ProblemArrays) -> TrainState:
    """Draws initial parameters."""

    def apply(network: Network) -> Any:
        inputs = make_inputs(environments.reset(problem))
        return network.decide(network.encode(problem), inputs)

    params = nn.init(apply, NETWORK)(key)
    return TrainState(params, OPTIMIZER.init(params), problem.best_single, jnp.ones(()))


@jax.jit
def update(
    train: TrainState, key: chex.PRNGKey, problem: ProblemArrays
) -> tuple[TrainState, Array]:
    """Plays `NUM_EPISODES` episodes and learns from them; returns their values [NUM_EPISODES]."""
    play_key, shuffle_key = jax.random.split(key)
    hidden = _apply(train.params, problem, method="encode")
    play = functools.partial(play_episode, problem=problem, hidden=hidden)
    keys = jax.random.split(play_key, NUM_EPISODES)
    transitions, placements = jax.vmap(play, in_axes=(None, 0))(train.params, keys)
    values, is_feasible = jax.vmap(problem.evaluate)(placements)
    advantages = jax.vmap(estimate_advantages)(transitions)
    targets = advantages + transitions.value
    # Steps after the end of an episode, which padding causes, teach nothing.
    num_steps = len(problem.order)
    is_step = jnp.arange(num_steps) < problem.num_ops
    mean, deviation = advantages.mean(where=is_step), advantages.std(where=is_step)
    advantages = jnp.where(is_step, (advantages - mean) / (deviation + 1e-8), 0.0)
    targets = jnp.where(is_step, targets, transitions.value)
    data = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (transitions, advantages, targets)
    )

    def learn(carry: tuple[Params, optax.OptState], rows: Array) -> tuple[Any, None]:
        params, optimizer = carry
        batch = jax.tree.map(lambda leaf: leaf[rows], data)
        gradient = jax.grad(compute_loss)(params, problem, *batch)
        change, optimizer = OPTIMIZER.update(gradient, optimizer, params)
        return (optax.apply_updates(params, change), optimizer), None

    size = NUM_EPISODES * num_steps
    shuffled = [
        jax.random.permutation(epoch_key, size)
        for epoch_key in jax.random.split(shuffle_key, NUM_EPOCHS)
    ]
    rows = jnp.stack(shuffled)[:, : size // NUM_MINIBATCHES * NUM_MINIBATCHES]
    rows = rows.reshape(NUM_EPOCHS * NUM_MINIBATCHES, -1)
    (params, optimizer), _ = jax.lax.scan(learn, (train.params, train.optimizer), rows)
    feasible_values = jnp.where(is_feasible, values, jnp.inf)
    best = feasible_values.argmin()
    is_better = feasible_values[best] < train.best_value
    return TrainState(
        params=params,
        optimizer=optimizer,
        best_placement=jnp.where(is_better, placements[best], train.best_placement),
        best_value=jnp.minimum(feasible_values[best], train.best_value),
    ), values


def train(problem: Problem, time_limit_s: float, seed: int = 0) -> np.ndarray:
    """Trains on a problem, prints the progress, and returns the best placement int32 [K]."""
    problem_arrays = environments.make_arrays(problem)
    key, init_key = jax.random.split(jax.random.key(seed))
    state = init(init_key, problem_arrays)
    start_s, number, next_line_s = time.monotonic(), 0, 0.0
    while time.monotonic() - start_s < time_limit_s:
        key, update_key = jax.random.split(key)
        state, values = update(state, update_key, problem_arrays)
        number += 1
        if time.monotonic() - start_s >= next_line_s:
            next_line_s += time_limit_s / 12
            print(
                f"{time.monotonic() - start_s:5.0f} s, {number * NUM_EPISODES:6} episodes: "
                f"mean {values.mean():.4f}, best {state.best_value:.4f} of the best single device"
            )
    return np.asarray(state.best_placement)[: problem.num_decisions]


def main(name: str = PROBLEM, time_limit_s: str = str(TIME_LIMIT_S)) -> None:
    """Trains on a problem of the suite."""
    problem = suite.load(name)
    placement = train(problem, float(time_limit_s))
    value_s, best_s = problem.value_s(placement), suite.best_known(name).value_s
    print(f"best placement: {1e3 * value_s:.4f} ms, {value_s / best_s:.3f} of the best known one")


if __name__ == "__main__":
    main(*sys.argv[1:])
