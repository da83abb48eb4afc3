"""DOPPLER: two policies, one selects an operation and one places it (Yao et al., ICLR 2026).

The paper is arXiv 2505.23131. An episode has a step for every operation. SEL selects one of the
operations whose inputs are placed, PLC selects its device, and the complete placement is evaluated.
Both have separate message-passing networks, each of which runs once for an episode:

    x_v     features of operations: mean time, bottom level, top level, delays of its inputs and of
            its outputs (`Tables.op_features`)
    e       = MPNN(x, delays of edges), along the edges and against them (`encoders.MPNN`)
    b_v     = sum of e over the longest path from v to the end; t_v the same from the start
    SEL     v ~ softmax over ready v of MLP[ F x_v, e_v, b_v, t_v ]
    s_d     = sum of e over the operations placed on device d so far
    PLC     d ~ softmax over devices of MLP[ G y_d, F x_v, e_v, s_d ]
    y_d     features of devices in the partial schedule (`_device_features`)

There are three stages of training. In `init` the policies imitate critical-path list scheduling
without evaluations (`stages=simulation` leaves it out; its time counts as compilation). Then they
learn from the simulator's latencies, then from measured ones, in a second search with `init_from`.
Only the placement is evaluated, as in the released code (xinyuyao/Doppler): the simulator runs
operations by its priority. The default has the sizes, reward and rates of this code, but a
constant learning rate and a moving average (decay 0.9) as baseline. `variant=tuned` has a quarter
of its width; 16 episodes are the baseline of each other. Comments mark the departures from paper
and code.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph
import numpy as np
import optax

from placement import arguments
from placement.graphs import dag
from placement.graphs.batching import pad
from placement.policies import base, encoders, inputs
from placement.policies.inputs import CostView, cost_view, with_finite_costs
from placement.problem import Problem
from placement.simulators import list_schedule, ranks
from placement.types import Array, LogProb, Params, Policy, Sample

_STAGES = ("imitation+simulation", "simulation")
_IMITATION_UPDATES, _IMITATION_EPISODES = 100, 4  # the authors' 2,000 updates have one episode
_IMITATION_RATE = 1e-3
_SLOPE = 0.1  # of leaky ReLU
_RELATIVE_TIE = 1e-5  # numbers closer than that are equal for the expert


class Tables(NamedTuple):
    """Arrays of a problem that the policies read next to its costs: N operations, padded."""

    is_op: Array  # bool [N]: False for padding
    leader: Array  # int32 [N]: the first of the operation's co-located ones
    op_features: Array  # float32 [N, 5]: of mean 0 and deviation 1
    edge_features: Array  # float32 [E, 1]: the mean delay, normalised likewise
    bottom_level: Array  # float32 [N]: the longest path from the operation to the end, in seconds
    bottom_path: Array  # bool [N, N]: row v has the operations of that path
    top_path: Array  # bool [N, N]: likewise of the longest path from the start
    is_reader: Array  # bool [N, N]: [v, w] is whether w reads v
    num_inputs: Array  # int32 [N]: operations that an operation reads


class _Episode(NamedTuple):
    """One episode: N operations, padded."""

    placement: Array  # int32 [N]
    order: Array  # int32 [N]: the operation of each step; steps of padding have padding
    log_prob: Array  # float32 []
    entropy: Array  # float32 []
    expert_log_prob: Array  # float32 []: of the expert's choices, summed over steps


class _PartialSchedule(NamedTuple):
    """The state of an episode between steps."""

    device: jax.Array  # int32 [N]; -1: not yet
    class_device: jax.Array  # int32 [N]: of the co-located operations that an operation leads; -1
    num_missing: Array  # int32 [N]: inputs that are not placed
    start_s: jax.Array  # float32 [N]
    finish_s: jax.Array  # float32 [N]
    free_s: Array  # float32 [D]
    load_s: Array  # float32 [D]
    embedding: Array  # float32 [D, H]: the sum over the operations on each device


# `select(step, log_probs, is_valid) -> int32 []`: the index of one of the choices
_Select = Callable[[Array, Array, Array], Array]


def doppler_view(problem: Problem, num_nodes: int, num_edges: int) -> CostView[Tables]:
    """Computes the padded costs of a problem and the policies' tables, on the host."""
    graph = problem.graph
    num_ops, num_pairs = graph.num_ops, len(problem.dependencies.senders)
    senders, receivers, _, pair = problem.dependencies
    pair_delay_s = np.zeros(num_pairs)
    np.maximum.at(pair_delay_s, pair, problem.mean_edge_delay_s)
    bottom_level = problem.upward_rank
    top_level = problem.reverse().upward_rank
    columns = (
        ranks.finite_mean(np.asarray(problem.costs.compute_s, np.float64)),
        bottom_level,
        top_level,
        np.bincount(receivers, pair_delay_s, num_ops),
        np.bincount(senders, pair_delay_s, num_ops),
    )
    order = problem.topological_order
    is_reader = np.zeros((num_ops, num_ops), bool)
    is_reader[senders, receivers] = True

    def pad_square(square: np.ndarray) -> np.ndarray:
        return np.pad(square, (0, num_nodes - num_ops))

    policy_tables = Tables(
        is_op=np.arange(num_nodes) < num_ops,
        leader=inputs.find_leaders(problem, num_nodes),
        op_features=pad(_normalise_columns(np.stack(columns, axis=1)), num_nodes, 0),
        edge_features=pad(_normalise_columns(pair_delay_s[:, None]), num_edges, 0),
        bottom_level=pad(bottom_level.astype(np.float32), num_nodes, 0),
        bottom_path=pad_square(
            _longest_path_members(order[::-1], senders, receivers, pair_delay_s, bottom_level)
        ),
        top_path=pad_square(
            _longest_path_members(order, receivers, senders, pair_delay_s, top_level)
        ),
        is_reader=pad_square(is_reader),
        num_inputs=pad(np.bincount(receivers, minlength=num_ops).astype(np.int32), num_nodes, 0),
    )
    return cost_view(problem, num_nodes, num_edges)._replace(policy_tables=policy_tables)


def _normalise_columns(x: np.ndarray) -> np.ndarray:
    """Scales columns [M, F] to mean 0 and deviation 1; constants become 0."""
    if not len(x):
        return x.astype(np.float32)
    deviation = x.std(axis=0)
    varies = deviation > 1e-9 * np.abs(x).max(axis=0)
    return (np.where(varies, x - x.mean(axis=0), 0) / np.where(varies, deviation, 1)).astype(
        np.float32
    )


def _longest_path_members(
    order: np.ndarray,
    sources: np.ndarray,
    targets: np.ndarray,
    delay_s: np.ndarray,
    level_s: np.ndarray,
) -> np.ndarray:
    """Returns for each operation the members of its longest path over edges, bool [N, N].

    Args:
      order: int [N]: the targets of an operation come before it.
      sources: int [E].
      targets: int [E].
      delay_s: float [E].
      level_s: float [N]: the length of the longest path of each operation.
    """
    members = np.eye(len(order), dtype=bool)
    outgoing = dag.list_by_node(len(order), sources, np.arange(len(sources)))
    for op in order.tolist():
        if outgoing[op]:
            edges = np.array(outgoing[op])
            members[op] |= members[
                targets[edges[np.argmax(delay_s[edges] + level_s[targets[edges]])]]
            ]
    return members


class _Network(nn.Module):
    """The two policies; H is `hidden_size`."""

    hidden_size: int
    rounds: int

    def setup(self) -> None:
        width = self.hidden_size
        self.sel_mpnn = encoders.MPNN(width, self.rounds)
        self.plc_mpnn = encoders.MPNN(width, self.rounds)
        self.sel_op, self.plc_op = encoders.Dense(width), encoders.Dense(width)
        self.plc_device = encoders.Dense(width)
        self.sel_hidden, self.plc_hidden = encoders.Dense(width // 2), encoders.Dense(width // 2)
        # A tenth of the usual scale; the authors' layers are orthogonal.
        small = encoders.lecun_normal(0.01)
        # Only differences of logits matter, so the last layers have no bias.
        self.sel_out, self.plc_out = (encoders.Dense(1, False, kernel_init=small) for _ in range(2))

    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Calls every part, for `init`."""
        num_devices = graph.globals.compute_s.shape[1]
        op, devices = self.embed(graph), jnp.zeros((num_devices, self.hidden_size))
        placed = self.place(jnp.zeros((num_devices, 5)), op[0][0], op[1][0], devices)
        return self.select(graph).sum() + placed.sum()

    def select(self, graph: jraph.GraphsTuple) -> Array:
        """Computes SEL's logits float32 [N]."""
        t: Tables = graph.globals.policy_tables
        embedding = _leaky_relu(self.sel_mpnn(*_mpnn_inputs(graph)))
        paths = [
            _normalise(path.astype(jnp.float32) @ embedding, t.is_op)
            for path in (t.bottom_path, t.top_path)
        ]
        projection = _leaky_relu(self.sel_op(t.op_features))
        hidden = self.sel_hidden(jnp.concatenate([projection, embedding, *paths], axis=-1))
        return cast(Array, self.sel_out(_leaky_relu(hidden))[:, 0])

    def embed(self, graph: jraph.GraphsTuple) -> tuple[Array, Array]:
        """Computes PLC's two embeddings of operations, float32 [N, H] each; padding has 0."""
        t: Tables = graph.globals.policy_tables
        embedding = _leaky_relu(self.plc_mpnn(*_mpnn_inputs(graph)))
        return _leaky_relu(self.plc_op(t.op_features)), jnp.where(t.is_op[:, None], embedding, 0.0)

    def place(self, features: Array, projection: Array, embedding: Array, placed: Array) -> Array:
        """Computes PLC's logits float32 [D].

        Args:
          features: float32 [D, 5], of the devices.
          projection: float32 [H], the selected operation's features after a layer (F x_v).
          embedding: float32 [H], of the selected operation (e_v).
          placed: float32 [D, H], of the operations on each device.
        """
        everywhere = jnp.ones(len(features), bool)
        device = _leaky_relu(self.plc_device(_normalise(features, everywhere)))
        op = jnp.concatenate([projection, embedding])
        op = jnp.broadcast_to(op, (len(features), len(op)))
        inputs = jnp.concatenate([device, op, _normalise(placed, everywhere)], axis=-1)
        return cast(Array, self.plc_out(_leaky_relu(self.plc_hidden(inputs)))[:, 0])


def _leaky_relu(x: Array) -> Array:
    return jax.nn.leaky_relu(x, _SLOPE)


def _normalise(x: Array, mask: Array) -> Array:
    """Scales columns [M, F] to mean 0 and deviation 1 over the rows in a mask bool [M]."""
    weight = (mask / jnp.maximum(mask.sum(), 1))[:, None]
    centred = x - (weight * x).sum(axis=0)
    variance = (weight * centred**2).sum(axis=0)
    return centred * jax.lax.rsqrt(variance + 1e-12) * (variance > 1e-12)


def _mpnn_inputs(graph: jraph.GraphsTuple) -> tuple[Array, Array, Array, Array, Array]:
    """Returns the arguments of `encoders.MPNN`: every edge in both directions."""
    costs: CostView[Tables] = graph.globals
    t, last = costs.policy_tables, len(costs.compute_s) - 1
    ends = jnp.stack([costs.senders, costs.receivers])
    u, v = jnp.minimum(ends, last)
    is_edge = jnp.tile(ends[0] <= last, 2)
    features = jnp.tile(t.edge_features, (2, 1))
    return t.op_features, features, jnp.concatenate([u, v]), jnp.concatenate([v, u]), is_edge


def make(
    *,
    num_devices: int,
    hidden_size: int = 32,
    rounds: int = 6,
    stages: str = "imitation+simulation",
) -> Policy:
    """Makes the policy; the globals of its graphs are a `doppler_view`.

    A sample's latent is the order of selection, int32 [1, N].

    Args:
      num_devices: D, which the graph also has; the parameters do not depend on it.
      hidden_size: H (128 in the authors' code); the MLPs' hidden layers have half of it.
      rounds: rounds of messages (6 in the authors' code).
      stages: 'imitation+simulation': `init` imitates the expert; 'simulation': it does not.

    Raises:
      UserError: `stages` is unknown.
    """
    arguments.check_choice("stages", stages, _STAGES)
    del num_devices
    network = _Network(hidden_size, rounds)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        graph = with_finite_costs(graph)
        init_key, key = jax.random.split(key)
        params = network.init(init_key, graph)
        return params if stages == "simulation" else _imitate(network, params, key, graph)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        episodes = _draw_episodes(network, params, key, with_finite_costs(graph), num_samples)
        placement, order, log_prob, entropy, _ = jax.tree.map(lambda x: x[:, None], episodes)
        return Sample(placement, log_prob, entropy, order, count_choices(graph, num_samples))

    def count_choices(graph: jraph.GraphsTuple, num_samples: int) -> Array:
        return jnp.full((num_samples, 1), 2.0 * graph.globals.policy_tables.is_op.sum())

    def score_samples(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        graph = with_finite_costs(graph)

        def score(placement: Array, order: Array) -> _Episode:
            def repeat_op(step: Array, log_probs: Array, is_valid: Array) -> Array:
                return order[step]

            def repeat_device(step: Array, log_probs: Array, is_valid: Array) -> Array:
                return placement[order[step]]

            return _run_episode(network, params, graph, repeat_op, repeat_device)

        placement, order = jnp.asarray(samples.placement), jnp.asarray(samples.latent)
        episodes = jax.vmap(score)(placement[:, 0], order[:, 0])
        log_prob, entropy = episodes.log_prob[:, None], episodes.entropy[:, None]
        return LogProb(log_prob, entropy, count_choices(graph, len(placement)))

    return Policy(init, sample, score_samples)


@functools.partial(jax.jit, static_argnums=0)  # so that searches of one shape compile it once
def _imitate(
    network: _Network, params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple
) -> Params:
    """Trains the policies to choose as the expert does, in the states that they visit."""
    optimiser = optax.adam(_IMITATION_RATE)
    num_ops = graph.globals.policy_tables.is_op.sum()

    def loss(params: Params, key: chex.PRNGKey) -> Array:
        episodes = _draw_episodes(network, params, key, graph, _IMITATION_EPISODES)
        return -episodes.expert_log_prob.mean() / num_ops

    def update(
        carry: tuple[Params, optax.OptState], key: chex.PRNGKey
    ) -> tuple[tuple[Params, optax.OptState], None]:
        params, opt_state = carry
        updates, opt_state = optimiser.update(jax.grad(loss)(params, key), opt_state)
        return (optax.apply_updates(params, updates), opt_state), None

    keys = jax.random.split(key, _IMITATION_UPDATES)
    return jax.lax.scan(update, (params, optimiser.init(params)), keys)[0][0]


def _draw_episodes(
    network: _Network,
    params: Params,
    key: chex.PRNGKey,
    graph: jraph.GraphsTuple,
    num_samples: int,
) -> _Episode:
    """Draws B episodes. The authors' code is greedy, or draws uniformly with a falling share."""
    num_steps = len(graph.nodes["mask"])
    keys = jax.random.split(key, num_steps * num_samples)
    keys = keys.reshape(num_steps, num_samples, *keys.shape[1:])

    def draw(keys: Array) -> _Episode:
        def select(purpose: int) -> _Select:
            def draw_choice(step: Array, log_probs: Array, is_valid: Array) -> Array:
                key = jax.random.fold_in(keys[step], purpose)
                noise = jax.random.gumbel(key, log_probs.shape)
                return jnp.argmax(jnp.where(is_valid, log_probs + noise, -jnp.inf))

            return draw_choice

        return _run_episode(network, params, graph, select(0), select(1))

    return jax.vmap(draw, in_axes=1)(keys)


def _run_episode(
    network: _Network,
    params: Params,
    graph: jraph.GraphsTuple,
    select_op: _Select,
    select_device: _Select,
) -> _Episode:
    """Runs one episode on a graph with finite costs."""
    costs: CostView[Tables] = graph.globals
    t = costs.policy_tables
    # These do not change during an episode. SEL's inputs are normalised over all operations; theirs
    # over the ready ones.
    sel_logits = cast(Array, network.apply(params, graph, method="select"))
    embeddings = network.apply(params, graph, method="embed")
    projection, embedding = cast(tuple[Array, Array], embeddings)
    num_ops, num_devices = costs.compute_s.shape
    allowed, devices = graph.nodes["allowed"], jnp.arange(num_devices)

    @jax.checkpoint  # so that the gradient stores only the input of each step
    def place(*inputs: Array) -> Array:
        return cast(Array, network.apply(params, *inputs, method="place"))

    def choose(
        step: Array, select: _Select, logits: Array, is_valid: Array, is_expert: Array
    ) -> tuple[Array, Array]:
        """Returns a choice, and its log-probability, the entropy and the expert's, [3]."""
        log_probs = jax.nn.log_softmax(jnp.where(is_valid, logits, -1e9))
        choice = select(step, log_probs, is_valid).astype(jnp.int32)
        entropy = -jnp.where(is_valid, jnp.exp(log_probs) * log_probs, 0.0).sum()
        # Equally good choices share the expert's log-probability; in the authors' code they add up.
        expert = jnp.where(is_expert, log_probs, 0.0).sum() / jnp.maximum(is_expert.sum(), 1)
        return choice, jnp.stack([log_probs[choice], entropy, expert])

    def take_step(
        state: _PartialSchedule, step: Array
    ) -> tuple[_PartialSchedule, tuple[Array, Array]]:
        is_ready = t.is_op & (state.device < 0) & (state.num_missing == 0)
        is_active = is_ready.any()
        # The expert selects the ready operation with the largest bottom level, and the device on
        # which it would finish first. Theirs takes the earliest start: their devices are equal.
        level_s = jnp.where(is_ready, t.bottom_level, -1.0)
        is_expert = is_ready & (level_s >= level_s.max() * (1 - _RELATIVE_TIE))
        # Steps of padding have no choice: each visits one node of padding.
        is_valid = jnp.where(is_active, is_ready, jnp.arange(num_ops) == step)
        op, op_terms = choose(step, select_op, sel_logits, is_valid, is_expert)

        features, start_s, finish_s = _device_features(costs, state, op)
        # Co-located operations are placed with the first of them that is selected.
        class_device = state.class_device[t.leader[op]]
        is_valid = jnp.where(
            class_device < 0, allowed[op] | ~allowed[op].any(), devices == class_device
        )
        earliest_s = jnp.where(is_valid, finish_s, jnp.inf).min()
        is_expert = is_valid & (finish_s <= earliest_s * (1 + _RELATIVE_TIE))
        logits = place(features, projection[op], embedding[op], state.embedding)
        device, device_terms = choose(step, select_device, logits, is_valid, is_expert)

        is_placed = is_active & (devices == device)
        next_state = _PartialSchedule(
            device=state.device.at[op].set(device),
            class_device=state.class_device.at[t.leader[op]].set(device),
            num_missing=state.num_missing - t.is_reader[op],
            start_s=state.start_s.at[op].set(start_s[device]),
            finish_s=state.finish_s.at[op].set(finish_s[device]),
            free_s=jnp.where(is_placed, finish_s, state.free_s),
            load_s=state.load_s + jnp.where(is_placed, costs.compute_s[op], 0.0),
            embedding=state.embedding + jnp.where(is_placed[:, None], embedding[op], 0.0),
        )
        return next_state, (op, jnp.where(is_active, op_terms + device_terms, 0.0))

    none, zeros = jnp.full(num_ops, -1, jnp.int32), jnp.zeros(num_ops)
    start = _PartialSchedule(
        *(none, none, t.num_inputs, zeros, zeros),
        *(jnp.zeros(num_devices), jnp.zeros(num_devices)),
        jnp.zeros((num_devices, embedding.shape[1])),
    )
    result, (order, terms) = jax.lax.scan(take_step, start, jnp.arange(num_ops))
    return _Episode(result.device, order, *terms.sum(axis=0))


def _device_features(
    costs: CostView[Tables], state: _PartialSchedule, op: Array
) -> tuple[Array, Array, Array]:
    """Computes features of devices float32 [D, 5] for an operation, its starts and finishes [D].

    They are the device's load; the time of the operation's inputs there, and their earliest start
    and latest finish; when the operation could start. An operation starts when its device is free
    and its inputs have arrived. The released code reads the device's load as its start.
    """
    num_devices, last = costs.compute_s.shape[1], len(costs.compute_s) - 1
    u = jnp.minimum(costs.senders, last)
    is_input = costs.receivers == op  # [E]
    device = state.device[u]
    is_there = is_input[:, None] & (device[:, None] == jnp.arange(num_devices))  # [E, D]
    arrival_s = list_schedule.arrival_from_edges(
        state.finish_s, state.device, u, costs.delay_s, is_input
    )
    start_s, finish_s = list_schedule.run_op(arrival_s, state.free_s, costs.compute_s[op])
    duration_s = (state.finish_s - state.start_s)[u][:, None]
    first_s = jnp.where(is_there, state.start_s[u][:, None], jnp.inf).min(axis=0)
    columns = (
        state.load_s,
        jnp.where(is_there, duration_s, 0.0).sum(axis=0),
        jnp.where(is_there.any(axis=0), first_s, 0.0),
        jnp.where(is_there, state.finish_s[u][:, None], 0.0).max(axis=0),
        start_s,
    )
    return jnp.stack(columns, axis=-1), start_s, finish_s


def read(problem: Problem) -> inputs.PolicyInput:
    """Reads a node for every operation, with its `doppler_view`."""
    return inputs.read(problem, doppler_view)


_REINFORCE = {"algorithm": "reinforce", "entropy_weight": 0.0}
_TUNED_LEARNER = {"num_samples": 16, "learning_rate": 1e-3}
_PAPER_LEARNER = {
    "num_samples": 1,
    "learning_rate": 1e-4,
    "reward": "linear",
    "baseline": "moving_average",
}
RECIPE = base.Recipe(
    make,
    {
        "paper": base.Variant({"hidden_size": 128}, _REINFORCE | _PAPER_LEARNER),
        "tuned": base.Variant({}, _REINFORCE | _TUNED_LEARNER),
    },
    read,
)
