"""A learned local search after HSDAG: `python -m experiments.examples.hsdag [PROBLEM] [SECONDS]`.

As in HSDAG (Duan et al. 2024) a graph network scores the edges, a parse by these scores divides the
graph into groups, and a policy on the groups is trained by REINFORCE. As in the project's own
method, and unlike the paper, a policy does not place all groups at once but moves one group at a
time of a complete placement (`placement.environments.move_group`):

1. The graph network encodes the operations, once per update.
2. Every operation draws one of the operations that produce its inputs, or itself. The trees of this
   choice are the groups.
3. A chain of moves changes a placement: each draws a group and its new device. A move that makes
   the placement worse is taken back with a probability that grows with the loss.
4. REINFORCE with the mean of the chains as its baseline: the reward of a move is its gain, and that
   of a parse the gain of all moves of its chain.
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

from placement import suite
from placement.environments import arrays, move_group
from placement.environments.arrays import ProblemArrays
from placement.instance import Instance
from placement.types import Array, Params

PROBLEM = "fork_join_100-makespan"  # of the suite, under makespan
TIME_LIMIT_S = 120.0

# Network.
HIDDEN_SIZE = 32
NUM_ROUNDS = 2  # of messages, in each direction
# Local search.
NUM_CHAINS = 64
NUM_MOVES = 16  # of a chain, with one parse
TEMPERATURE = 0.005  # of acceptance, in units of the best single device
RESTART_SHARE = 0.02  # of the chains, which begin at the best placement again
# REINFORCE.
LEARNING_RATE = 1e-3
LARGEST_GAIN = 0.05  # in units; smaller ones are the reward, and losses count as no gain
ENTROPY_WEIGHT = 0.05
MAX_GRADIENT_NORM = 1.0


class Encoding(NamedTuple):
    """The operations, and the scores of the edges."""

    hidden: Array  # float32 [N, HIDDEN_SIZE]
    edge_log_prob: Array  # float32 [E]: that the receiver draws the sender
    own_log_prob: Array  # float32 [N]: that an operation draws itself


class Parse(NamedTuple):
    """Groups of operations."""

    root: Array  # int32 [N]: equal numbers are a group
    edge: Array  # int32 [N]: the drawn edge; E for none


class Move(NamedTuple):
    """A drawn move, and what the policy read."""

    placement: Array  # int32 [N]: before it
    root: Array  # int32 []: the group
    device: Array  # int32 []
    reward: Array  # float32 []


class Network(nn.Module):
    """Encodes operations and scores edges, groups and devices."""

    def setup(self) -> None:
        """Makes the layers."""
        self.embed = nn.Dense(HIDDEN_SIZE)
        self.messages = [nn.Dense(HIDDEN_SIZE) for _ in range(2 * NUM_ROUNDS)]
        self.updates = [nn.Dense(HIDDEN_SIZE) for _ in range(2 * NUM_ROUNDS)]
        self.edge_score = _mlp(1)
        self.own_score = self.param("own_score", nn.initializers.constant(1.0), ())
        self.move_score = _mlp(1)

    def encode(self, problem: ProblemArrays) -> Encoding:
        """Encodes the operations, and normalises the scores of each one's inputs and itself."""
        graph = problem.graph
        is_edge, senders, receivers = graph.edges["mask"], graph.senders, graph.receivers
        hidden = nn.relu(self.embed(jnp.concatenate([graph.nodes["features"], _costs(problem)], 1)))
        ends = (senders, receivers), (receivers, senders)
        for layer, (message, update) in enumerate(zip(self.messages, self.updates, strict=True)):
            source, target = ends[layer % 2]
            sent = jnp.where(is_edge[:, None], nn.relu(message(hidden))[source], 0.0)
            received = jax.ops.segment_sum(sent, target, len(hidden))
            count = jax.ops.segment_sum(is_edge * 1.0, target, len(hidden))
            received = received / jnp.maximum(count, 1.0)[:, None]
            hidden += nn.relu(update(jnp.concatenate([hidden, received], axis=1)))
        delay = jnp.log1p(problem.delay_s.mean(axis=(1, 2)) / _mean_compute_s(problem))
        pairs = jnp.concatenate([hidden[senders], hidden[receivers], delay[:, None]], axis=1)
        score = jnp.where(is_edge, self.edge_score(pairs)[:, 0], -1e9)
        largest = jnp.maximum(jax.ops.segment_max(score, receivers, len(hidden)), self.own_score)
        exp = jnp.exp(score - largest[receivers])
        own = self.own_score - largest
        total = jnp.log(jax.ops.segment_sum(exp, receivers, len(hidden)) + jnp.exp(own))
        return Encoding(hidden, score - (largest + total)[receivers], own - total)

    def score_moves(self, problem: ProblemArrays, hidden: Array, parse: Parse, placement: Array):
        """Returns log-probabilities float32 [N, D] of moving the group of root n to device d."""
        num_ops, num_devices = problem.compute_s.shape
        is_op = jnp.arange(num_ops) < problem.num_ops
        size = jax.ops.segment_sum(is_op * 1.0, parse.root, num_ops)
        pooled = jax.ops.segment_sum(hidden * is_op[:, None], parse.root, num_ops)
        pooled = pooled / jnp.maximum(size, 1.0)[:, None]
        # The share of a group, and of its neighbours, that is on each device.
        onehot = jax.nn.one_hot(placement, num_devices) * is_op[:, None]
        current = jax.ops.segment_sum(onehot, parse.root, num_ops)
        graph = problem.graph
        is_cut = graph.edges["mask"] & (parse.root[graph.senders] != parse.root[graph.receivers])
        around = [
            jax.ops.segment_sum(onehot[there] * is_cut[:, None], parse.root[here], num_ops)
            for here, there in (
                (graph.senders, graph.receivers),
                (graph.receivers, graph.senders),
            )
        ]
        load = (onehot * problem.compute_s.clip(max=1e9)).sum(axis=0) / problem.unit_s
        per_device = jnp.stack(
            [
                current / jnp.maximum(size, 1.0)[:, None],
                *(jnp.log1p(count) for count in around),
                jnp.broadcast_to(load, (num_ops, num_devices)),
                jax.ops.segment_sum(_costs(problem) * is_op[:, None], parse.root, num_ops),
            ],
            axis=2,
        )
        groups = jnp.broadcast_to(pooled[:, None], (num_ops, num_devices, pooled.shape[1]))
        score = self.move_score(jnp.concatenate([groups, per_device], axis=2))[:, :, 0]
        is_change = (current < size[:, None]) & (size > 0)[:, None]
        score = jnp.where(is_change & _is_allowed(problem, parse), score, -1e9)
        return jax.nn.log_softmax(score, axis=(0, 1))


def _mlp(size: int) -> nn.Module:
    return nn.Sequential([nn.Dense(HIDDEN_SIZE), nn.relu, nn.Dense(size)])


NETWORK = Network()


def _apply(params: Params, *arrays: Any, method: str) -> Any:
    return NETWORK.apply(params, *arrays, method=method)


OPTIMIZER = optax.chain(optax.clip_by_global_norm(MAX_GRADIENT_NORM), optax.adam(LEARNING_RATE))


def _mean_compute_s(problem: ProblemArrays) -> Array:
    is_known = jnp.isfinite(problem.compute_s)
    total_s = jnp.where(is_known, problem.compute_s, 0.0).sum()
    return total_s / (problem.num_ops * problem.compute_s.shape[1])


def _costs(problem: ProblemArrays) -> Array:
    """Returns float32 [N, D]: times in units of the mean one, compressed."""
    compute_s = jnp.where(jnp.isfinite(problem.compute_s), problem.compute_s, 0.0)
    return jnp.log1p(compute_s / _mean_compute_s(problem))


def _is_allowed(problem: ProblemArrays, parse: Parse) -> Array:
    """Returns bool [N, D]: whether a device can run all operations of a root's group."""
    allowed = problem.graph.nodes["allowed"].astype(jnp.int32)
    return jax.ops.segment_min(allowed, parse.root, len(allowed)) > 0


def draw_parse(key: chex.PRNGKey, problem: ProblemArrays, encoding: Encoding) -> Parse:
    """Draws one input for each operation, or itself, by the Gumbel maximum."""
    graph, num_ops = problem.graph, len(encoding.own_log_prob)
    edge_key, own_key = jax.random.split(key)
    edge_score = encoding.edge_log_prob + jax.random.gumbel(edge_key, graph.senders.shape)
    own_score = encoding.own_log_prob + jax.random.gumbel(own_key, (num_ops,))
    best = jax.ops.segment_max(edge_score, graph.receivers, num_ops)
    numbers = jnp.arange(len(graph.senders))
    is_best = (edge_score == best[graph.receivers]) & graph.edges["mask"]
    edge = jax.ops.segment_max(jnp.where(is_best, numbers, -1), graph.receivers, num_ops)
    is_drawn = (best > own_score) & (edge >= 0)
    root = jnp.where(is_drawn, graph.senders[edge], jnp.arange(num_ops))
    for _ in range(int(np.ceil(np.log2(num_ops)))):
        root = root[root]
    return Parse(root, jnp.where(is_drawn, edge, len(numbers)))


def parse_log_prob(encoding: Encoding, parse: Parse) -> Array:
    """Returns float32 []: the log-probability of a parse."""
    edge_log_prob = jnp.append(encoding.edge_log_prob, 0.0)
    is_drawn = parse.edge < len(encoding.edge_log_prob)
    return jnp.where(is_drawn, edge_log_prob[parse.edge], encoding.own_log_prob).sum()


def run_chain(
    params: Params,
    key: chex.PRNGKey,
    state: move_group.State,
    problem: ProblemArrays,
    encoding: Encoding,
) -> tuple[move_group.State, Parse, Move]:
    """Draws a parse and `NUM_MOVES` moves that begin at a placement."""
    parse_key, moves_key = jax.random.split(key)
    parse = draw_parse(parse_key, problem, encoding)

    def advance(state: move_group.State, key: chex.PRNGKey) -> tuple[move_group.State, Move]:
        draw_key, accept_key = jax.random.split(key)
        log_prob = _apply(
            params, problem, encoding.hidden, parse, state.placement, method="score_moves"
        )
        choice = jax.random.categorical(draw_key, log_prob.reshape(-1))
        root, device = jnp.divmod(choice, log_prob.shape[1])
        result = move_group.step(state, move_group.Action(parse.root == root, device))
        is_accepted = jax.random.exponential(accept_key) * TEMPERATURE > -result.reward
        after = result.state._replace(
            placement=jnp.where(is_accepted, result.state.placement, state.placement),
            value=jnp.where(is_accepted, result.state.value, state.value),
        )
        return after, Move(state.placement, root, device, result.reward)

    state, moves = jax.lax.scan(advance, state, jax.random.split(moves_key, NUM_MOVES))
    return state, parse, moves


def compute_loss(params: Params, problem: ProblemArrays, parses: Parse, moves: Move) -> Array:
    """Returns the loss of REINFORCE; the leading axis of parses and moves is `NUM_CHAINS`."""
    encoding = _apply(params, problem, method="encode")

    def chain(parse: Parse, moves: Move) -> tuple[Array, Array, Array]:
        score = functools.partial(_apply, params, problem, encoding.hidden, parse)
        log_probs = jax.vmap(functools.partial(score, method="score_moves"))(moves.placement)
        chosen = log_probs[jnp.arange(NUM_MOVES), moves.root, moves.device]
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=(1, 2))
        return parse_log_prob(encoding, parse), chosen, entropy

    parse_log_probs, move_log_probs, entropy = jax.vmap(chain)(parses, moves)
    gain = moves.reward.clip(0.0, LARGEST_GAIN)
    move_loss = -(_normalise(gain) * move_log_probs).mean()
    parse_loss = -(_normalise(gain.sum(axis=1)) * parse_log_probs).mean()
    return move_loss + parse_loss / len(problem.order) - ENTROPY_WEIGHT * entropy.mean()


def _normalise(gain: Array) -> Array:
    return (gain - gain.mean()) / (gain.std() + 1e-6)


class TrainState(NamedTuple):
    """Parameters, and the chains."""

    params: Params
    optimizer: optax.OptState
    chains: move_group.State  # with a leading axis, except its problem


_CHAIN_AXES = move_group.State(None, 0, 0, 0, 0)  # type: ignore[arg-type]


def init(key: chex.PRNGKey, problem: ProblemArrays) -> TrainState:
    """Draws initial parameters, and begins the chains at single devices."""
    reset = functools.partial(move_group.reset, problem=problem)
    chains, _ = jax.vmap(reset, out_axes=(_CHAIN_AXES, 0))(jax.random.split(key, NUM_CHAINS))
    num_ops, num_edges = len(problem.order), len(problem.graph.senders)
    alone = Parse(jnp.arange(num_ops), jnp.full(num_ops, num_edges))

    def apply(network: Network) -> Any:
        hidden = network.encode(problem).hidden
        return network.score_moves(problem, hidden, alone, chains.placement[0])

    params = nn.init(apply, NETWORK)(key)
    return TrainState(params, OPTIMIZER.init(params), chains)


@jax.jit
def update(
    train: TrainState, key: chex.PRNGKey, problem: ProblemArrays
) -> tuple[TrainState, Array]:
    """Runs all chains and learns from them; returns the mean reward of a move."""
    run_key, restart_key = jax.random.split(key)
    encoding = _apply(train.params, problem, method="encode")
    run = functools.partial(run_chain, problem=problem, encoding=encoding)
    chains, parses, moves = jax.vmap(
        run, in_axes=(None, 0, _CHAIN_AXES), out_axes=(_CHAIN_AXES, 0, 0)
    )(train.params, jax.random.split(run_key, NUM_CHAINS), train.chains)
    gradient = jax.grad(compute_loss)(train.params, problem, parses, moves)
    change, optimizer = OPTIMIZER.update(gradient, train.optimizer, train.params)
    best = chains.best_value.argmin()
    is_restarted = jax.random.uniform(restart_key, (NUM_CHAINS,)) < RESTART_SHARE
    chains = chains._replace(
        placement=jnp.where(is_restarted[:, None], chains.best_placement[best], chains.placement),
        value=jnp.where(is_restarted, chains.best_value[best], chains.value),
    )
    params = optax.apply_updates(train.params, change)
    return TrainState(params, optimizer, chains), moves.reward.mean()


def train(problem: Instance, time_limit_s: float, seed: int = 0) -> np.ndarray:
    """Trains on a problem, prints the progress, and returns the best placement int32 [N]."""
    problem_arrays = arrays.make_arrays(problem)
    key, init_key = jax.random.split(jax.random.key(seed))
    state = init(init_key, problem_arrays)
    start_s, number, next_line_s = time.monotonic(), 0, 0.0
    while time.monotonic() - start_s < time_limit_s:
        key, update_key = jax.random.split(key)
        state, reward = update(state, update_key, problem_arrays)
        number += 1
        if time.monotonic() - start_s >= next_line_s:
            next_line_s += time_limit_s / 12
            print(
                f"{time.monotonic() - start_s:5.0f} s, {number * NUM_CHAINS * NUM_MOVES:8} moves: "
                f"mean gain {reward:.5f}, best {state.chains.best_value.min():.4f} of the best "
                "single device"
            )
    best = np.asarray(state.chains.best_placement)[state.chains.best_value.argmin()]
    return best[: problem.graph.num_ops]


def main(name: str = PROBLEM, time_limit_s: str = str(TIME_LIMIT_S)) -> None:
    """Trains on a problem of the suite."""
    problem = suite.load(name)
    placement = train(problem, float(time_limit_s))
    value_s, best_s = problem.value_s(placement), suite.best_known(name).value_s
    print(f"best placement: {1e3 * value_s:.4f} ms, {value_s / best_s:.3f} of the best known one")


if __name__ == "__main__":
    main(*sys.argv[1:])
