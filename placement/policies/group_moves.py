"""Group moves: a local search whose policy chooses groups of operations and their new devices.

The policy has the parts of HSDAG (`hsdag`; Duan et al. 2024) and is not that method: it improves a
placement instead of drawing one. An action moves one group of operations to one device and leaves
all others where they are.

    x_v     [N, F]      features of operation v: the paper's; its costs and its position in the
                        graph; its start, length, slack and device in the schedule (`schedules`)
    z       [N, H]      graph network over x, along the edges and against them; messages see the
                        mean and the current delay of the edge, and whether it crosses devices
    edges   [E + N]     those of the graph, and from each operation to the next on its device
    s_uv    [E + N]     MLP[ z_u * z_v, edge ] + w log( 1/5 + delay_uv / median delay )
    parses  [P, L+1, N] P = 4, independent samples by the scores (`graph_parsing.draw`): two of the
                        graph's edges, two of all edges; each has L levels of groups
    groups  [K, N]      of a random operation, its group at a random level of a parse; half of them
                        leave out the members on other devices than that operation
    move    [K, D]      ~ softmax over groups g and devices d of MLP[ mean z of g, features of the
                        group, of the move and of the device ] (`moves`)

The B samples of a step share the parses and the groups, and draw their moves without replacement:
sample b chooses among the moves that the samples before it did not take. The learner is
`learning.local_search`: a reward for each step's gain, with the other samples as baseline.
Parameters pretrained on other graphs are installed for the objective `makespan`.
"""

from typing import NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement import arguments
from placement.policies import (
    base,
    distributions,
    encoders,
    graph_parsing,
    inputs,
    moves,
    schedules,
)
from placement.policies.inputs import CostFeatures, CostView
from placement.simulators.makespan import OpSchedule
from placement.types import Array, LogProb, Params, Policy, Sample

_HIDDEN_SIZE, _NUM_LAYERS = 32, 2
_DELAY_OFFSET = 0.2  # added to an edge's delay in medians, so that its logarithm is bounded
_INVALID_MOVE_NOISE = -1e30  # ranks invalid moves last; finite, unlike the rank of moves taken
_PARSES_PER_KIND = 2  # parses of the graph's edges, and as many of all edges
_NEXT_EDGE_SCORE = -0.5  # the initial score of an edge to the next operation on the device


class Action(NamedTuple):
    """The actions of the B samples of a step, and the state that they share.

    The fields above `move` are equal for all samples.
    """

    placement: Array  # int32 [B, N]: the state
    schedule: OpSchedule  # float32 [B, N] each: its schedule
    kept_end: Array  # int32 [B, P, L, N]: see `graph_parsing.Parse`
    root: Array  # int32 [B, P, L + 1, N]: see there
    parse: Array  # int32 [B, K]: the parse that each group is from
    anchor: Array  # int32 [B, K]: the operation whose group it is
    level: Array  # int32 [B, K]: its level of the parse
    one_device: Array  # bool [B, K]: whether only the members on the anchor's device move
    move: Array  # int32 [B]: D times the group, plus the device
    earlier_moves: Array  # bool [B, K D]: the moves of the samples before this one
    is_uniform: Array  # bool [B]: whether the move was drawn uniformly


class SharedDraw(NamedTuple):
    """The draw of the parse that a sample's group is from, for `learning.local_search`.

    The log-probability is (sum over the M kept edges below g of log p(edge | scores)) / sqrt(M),
    where the kept edges below g are those by which the parse joined the members of the moved group.
    The learner compares a parse's samples with those of the other parses. The gradient is biased:

    - The root shortens it, so that a sum over hundreds of edges does not drown the move's choice.
    - It leaves out the edges of other operations, which keep these out of the group.
    - A parse also decides which moves compete, and which repeat those of other parses.
    - Uniform samples count, although the policy would draw other moves.

    On two chains of three operations, where only the move of a whole chain pays, the expected
    estimate has 0.8 of the length of the true gradient and its direction, with less than half of
    the deviation of an estimate from all edges of all parses
    (`tests/policies/test_group_moves.py`).
    """

    log_prob: Array  # float32 [B, 1]
    number: Array  # int32 [B, 1]: samples with equal numbers share the parse


class _Encoding(NamedTuple):
    """The network's view of the state."""

    z: Array  # float32 [N, H]
    edges: graph_parsing.Edges  # E + N edges; the mask is that of each parse, bool [P, E + N]
    scores: Array  # float32 [E + N]
    state: moves.ScheduledPlacement


class _Network(nn.Module):
    """The parts of the policy; H is `hidden_size`.

    The names of submodules and parameters are those of the installed parameters.
    """

    hidden_size: int
    num_layers: int
    score_factor: float = 1.0  # of the learned part of the scores

    def setup(self) -> None:
        width = self.hidden_size
        self.embed = encoders.MLP((width, width))
        self.layers = [encoders.Directed(width) for _ in range(self.num_layers)]
        self.edge_layer = nn.Dense(width, name="of_edge")
        self.scorer = nn.Dense(1, use_bias=False)  # only differences of scores matter
        self.delay_weight = self.param("delay_weight", nn.initializers.ones, ())
        next_score = nn.initializers.constant(_NEXT_EDGE_SCORE)
        self.next_edge_score = self.param("next_weight", next_score, ())
        self.group_layer = nn.Dense(width, name="of_group")
        self.move_layer = nn.Dense(width, use_bias=False, name="of_device")
        self.hidden = nn.Dense(width)
        small = nn.initializers.variance_scaling(0.01, "fan_in", "truncated_normal")
        self.choice = nn.Dense(1, kernel_init=small, use_bias=False)

    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Calls every part, for `init`."""
        placement = jnp.zeros(graph.nodes["mask"].shape, jnp.int32)
        schedule = schedules.compute_schedule(graph.globals, placement)
        encoding = self.encode(graph, placement, schedule)
        return self.score_moves(graph, encoding, jnp.ones((1, len(placement)), bool))

    def encode(self, graph: jraph.GraphsTuple, placement: Array, schedule: OpSchedule) -> _Encoding:
        """Computes z and the scores of edges under a placement int32 [N]."""
        costs: CostView[CostFeatures] = graph.globals
        unit_s = costs.policy_tables.unit_s
        state = moves.describe_placement(graph, placement, schedule, unit_s)
        u, v = jnp.asarray(graph.senders), jnp.asarray(graph.receivers)
        mean_delay = state.mean_delay  # [E]
        crosses = placement[u] != placement[v]
        edge = jnp.stack(
            [jnp.log1p(mean_delay), jnp.log1p(state.current_delay), crosses], axis=-1
        )  # [E, 3]
        latency_s = jnp.maximum(schedule.latency_s, jnp.finfo(jnp.float32).tiny)
        duration_s = schedule.finish_s - schedule.start_s
        min_s = jnp.asarray(costs.compute_s).min(axis=1)
        log_slowdown = jnp.log(jnp.maximum(duration_s, 1e-12) / jnp.maximum(min_s, 1e-12))
        columns = (
            schedule.start_s / latency_s,
            duration_s / latency_s,
            schedule.slack_s / latency_s,
            state.load[state.placement],
            jnp.clip(log_slowdown, 0.0, 5.0),
        )
        x = [graph.nodes["features"], costs.policy_tables.op, jnp.stack(columns, axis=-1)]
        z = self.embed(jnp.concatenate(x, axis=-1))
        for layer in self.layers:
            z = layer(graph, z, edge)

        # The edges of the parses: E of the graph, and N from each operation to the next one on its
        # device. Sorted by device, then by start, the next operation is the next in this order.
        num_nodes, mask = len(placement), jnp.asarray(graph.nodes["mask"])
        start_s = jnp.where(mask, schedule.start_s, jnp.inf)
        order = jnp.lexsort((start_s, placement)).astype(jnp.int32)
        following = jnp.roll(order, -1)
        is_next = (placement[order] == placement[following]) & mask[order] & mask[following]
        is_next &= jnp.arange(num_nodes) < num_nodes - 1
        graph_mask = jnp.asarray(graph.edges["mask"])
        # A parse of the graph's edges only, one of all edges, and so on in turn: bool [P, E + N].
        masks = [jnp.concatenate([graph_mask, m]) for m in (jnp.zeros_like(is_next), is_next)]
        edges = graph_parsing.Edges(
            jnp.concatenate([u, order]),
            jnp.concatenate([v, following]),
            jnp.stack(_PARSES_PER_KIND * masks),
        )

        # The scores. The log delay is their prior.
        is_delayed = graph.edges["mask"] & (mean_delay > 0)
        median = jnp.nanmedian(jnp.where(is_delayed, mean_delay, jnp.nan))
        median = jnp.where(jnp.isfinite(median), median, 1.0)
        prior = self.delay_weight * jnp.log(_DELAY_OFFSET + mean_delay / median)
        prior = jnp.concatenate([prior, jnp.broadcast_to(self.next_edge_score, num_nodes)])
        is_next_edge = (jnp.arange(len(prior)) >= len(u))[:, None]
        products = z[edges.senders] * z[edges.receivers]  # [E + N, H]
        edge = jnp.pad(edge, ((0, num_nodes), (0, 0)))
        inputs = jnp.concatenate([products, edge, is_next_edge], axis=-1)
        scores = self.scorer(jax.nn.relu(self.edge_layer(inputs)))[:, 0]
        scores = self.score_factor * scores + prior
        return _Encoding(z, edges, scores, state)

    def score_moves(self, graph: jraph.GraphsTuple, encoding: _Encoding, members: Array) -> Array:
        """Computes the logits float32 [K D] of the moves of groups bool [K, N]."""
        group_features, move_features = moves.move_features(graph, encoding.state, members)
        group = members.astype(jnp.float32)
        mean_z = group @ encoding.z / jnp.maximum(group.sum(axis=1, keepdims=True), 1.0)
        device = jnp.asarray(graph.globals.policy_tables.device)  # [D, 7]
        device = jnp.broadcast_to(device, (len(group), *device.shape))
        hidden = self.group_layer(jnp.concatenate([mean_z, group_features], axis=-1))[:, None]
        hidden = hidden + self.move_layer(jnp.concatenate([move_features, device], axis=-1))
        hidden = jax.nn.relu(self.hidden(jax.nn.relu(hidden)))  # [K, D, H]
        return self.choice(hidden)[..., 0].reshape(-1)


def make(
    *,
    num_devices: int,
    hidden_size: int = _HIDDEN_SIZE,
    num_layers: int = _NUM_LAYERS,
    levels: int = 8,
    groups: int = 128,
    uniform: float = 0.125,
    scores: str = "learned",
) -> Policy:
    """Makes the policy; the globals of its graphs are a `inputs.cost_feature_view`.

    Args:
      num_devices: D, which the graph also has; the parameters do not depend on it.
      hidden_size: H, of the embeddings and the MLPs.
      num_layers: rounds of messages of the graph network.
      levels: L, of a parse.
      groups: K, but at least the number of samples.
      uniform: the share of the samples whose move is drawn uniformly, rounded down. A policy that
        has learned to gain a little with small groups would no longer try large ones, which are the
        only way to leave a device on which many operations share weights.
      scores: 'learned', or the 'prior': by the delays alone, as an ablation.

    Raises:
      UserError: `uniform` is out of range, or `scores` is unknown.
    """
    arguments.check_range("uniform", uniform, 0, 1)
    arguments.check_choice("scores", scores, ("learned", "prior"))
    del num_devices
    network = _Network(hidden_size, num_layers, float(scores == "learned"))

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        return network.init(key, inputs.with_finite_costs(graph))

    def encode(
        params: Params, graph: jraph.GraphsTuple, placement: Array, schedule: OpSchedule
    ) -> _Encoding:
        encoding = network.apply(params, graph, placement, schedule, method="encode")
        return cast(_Encoding, encoding)

    def score_moves(
        params: Params, graph: jraph.GraphsTuple, encoding: _Encoding, members: Array
    ) -> Array:
        logits = network.apply(params, graph, encoding, members, method="score_moves")
        return cast(Array, logits)

    def sample(
        params: Params,
        key: chex.PRNGKey,
        graph: jraph.GraphsTuple,
        batch: int,
        placements: Array | None = None,
    ) -> Sample:
        graph = inputs.with_finite_costs(graph)
        if placements is None:
            placement = jnp.argmax(graph.nodes["allowed"], axis=1).astype(jnp.int32)
        else:
            placement = jnp.asarray(placements)[0]  # the samples of a step change the same one
        num_devices, num_groups = graph.globals.compute_s.shape[1], max(groups, batch)
        num_uniform = int(uniform * batch)
        num_noises = 1 + (num_uniform > 0)  # noise for the policy's moves, and for uniform ones
        uniform_key, *parse_keys = jax.random.split(key, 1 + 2 * _PARSES_PER_KIND)
        # All numbers in one draw: compiling a draw takes half a second.
        shape = 3 + num_noises * num_devices, num_groups
        numbers = jax.random.uniform(uniform_key, shape, minval=1e-20)

        schedule = schedules.compute_schedule(graph.globals, placement)
        encoding = encode(params, graph, placement, schedule)

        # The parses and the K groups.
        draw_parses = jax.vmap(
            lambda key, mask: graph_parsing.draw(
                key, encoding.scores, encoding.edges._replace(mask=mask), len(placement), levels
            )
        )
        parses = draw_parses(jnp.stack(parse_keys), encoding.edges.mask)
        # A level at which no parse joins anything has the groups of the level before it.
        has_grown = (parses.root[:, 1:] != parses.root[:, :-1]).any(axis=(0, 2))
        shared = Action(
            placement,
            schedule,
            parses.kept_end,
            parses.root,
            parse=jnp.arange(num_groups, dtype=jnp.int32) % len(parses.root),
            anchor=_draw_masked_index(jnp.asarray(graph.nodes["mask"]), numbers[0]),
            level=_draw_masked_index(jnp.concatenate([jnp.ones(1, bool), has_grown]), numbers[1]),
            one_device=numbers[2] < 0.5,
            move=jnp.zeros((), jnp.int32),
            earlier_moves=jnp.zeros(num_groups * num_devices, bool),
            is_uniform=jnp.zeros((), bool),
        )
        action: Action = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), shared)
        group, members, is_valid = _find_groups(graph, action)
        logits = score_moves(params, graph, encoding, members)  # [K D]

        # Gumbel top-k: the moves with the largest perturbed logits, in descending order, are draws
        # without replacement (Kool et al. 2019). Uniform moves have equal logits.
        noise = numbers[3:].reshape(num_noises, num_devices, num_groups).swapaxes(1, 2)
        gumbel = -jnp.log(-jnp.log(noise.reshape(num_noises, -1)))
        noise = jnp.where(is_valid.reshape(-1), gumbel, _INVALID_MOVE_NOISE)
        _, move = jax.lax.top_k(logits + noise[0], batch - num_uniform)
        if num_uniform:
            remaining = noise[1].at[move].set(-jnp.inf)
            move = jnp.concatenate([move, jax.lax.top_k(remaining, num_uniform)[1]])
        one_hot = jax.nn.one_hot(move, len(logits), dtype=jnp.int32)  # [B, K D]
        earlier_moves = (jnp.cumsum(one_hot, axis=0) - one_hot) > 0
        is_uniform = jnp.arange(batch) >= batch - num_uniform
        action = action._replace(
            move=move.astype(jnp.int32), earlier_moves=earlier_moves, is_uniform=is_uniform
        )

        # The placements after the moves. With fewer valid moves than samples, the last do nothing.
        moved_group, device = action.move // num_devices, action.move % num_devices
        is_changed = is_valid.reshape(-1)[move][:, None] & members[moved_group]
        is_changed &= jnp.asarray(graph.nodes["allowed"])[:, device].T
        new_placements = jnp.where(is_changed, device[:, None], placement)
        score = _score(encoding, logits, action, group, is_valid)
        latent = jax.tree.map(lambda x: x[:, None], action)
        return Sample(new_placements[:, None], score.log_prob, score.entropy, latent)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        graph = inputs.with_finite_costs(graph)
        action: Action = jax.tree.map(lambda x: x[:, 0], samples.latent)
        schedule = jax.tree.map(lambda x: x[0], action.schedule)
        encoding = encode(params, graph, action.placement[0], schedule)
        group, members, is_valid = _find_groups(graph, action)
        logits = score_moves(params, graph, encoding, members)
        return _score(encoding, logits, action, group, is_valid)

    return Policy(init, sample, log_prob)


def _draw_masked_index(mask: Array, uniform: Array) -> Array:
    """Draws indices int32 [K] at which the mask bool [M] is True, by uniform numbers [K]."""
    number = (uniform * mask.sum()).astype(jnp.int32)
    # Comparing with all is fewer instructions to compile than a binary search.
    cumulated = jnp.cumsum(mask)
    return jnp.searchsorted(cumulated, number + 1, method="compare_all").astype(jnp.int32)


def _find_groups(graph: jraph.GraphsTuple, action: Action) -> tuple[Array, Array, Array]:
    """Returns the groups bool [K, N], their members that move, and the valid moves bool [K, D]."""
    placement, anchor = action.placement[0], action.anchor[0]
    root = action.root[0][action.parse[0], action.level[0]]  # [K, N]
    group = root == jnp.take_along_axis(root, anchor[:, None], axis=1)
    may_move = ~action.one_device[0][:, None] | (placement == placement[anchor][:, None])
    members = group & may_move & jnp.asarray(graph.nodes["mask"])
    return group, members, moves.find_valid_moves(graph, placement, members)


def _score(
    encoding: _Encoding, logits: Array, action: Action, group: Array, is_valid: Array
) -> LogProb:
    """Computes the log-probabilities of actions; uniform samples teach the choice nothing."""
    moved_group = action.move // is_valid.shape[1]  # [B]
    parses = graph_parsing.Parse(action.root[0], action.kept_end[0])
    edge_log_prob = jax.vmap(
        lambda mask, parse: graph_parsing.log_prob(
            encoding.scores, encoding.edges._replace(mask=mask), parse
        )
    )(encoding.edges.mask, parses)  # [P, L, N]
    is_kept = (parses.kept_end < 2 * len(encoding.scores)).astype(jnp.float32)

    def sum_below(slots: Array) -> Array:
        """Sums [P, L, N] over the members of each moved group and the levels below its own."""
        moved = group[moved_group].astype(jnp.float32)
        sums = jnp.einsum("bn,pln->bpl", moved, slots)
        parse = action.parse[0][moved_group][:, None, None]
        sums = jnp.take_along_axis(sums, parse, axis=1)[:, 0]  # [B, L]
        is_below = jnp.arange(sums.shape[1]) < action.level[0][moved_group][:, None]
        return jnp.where(is_below, sums, 0.0).sum(axis=1)

    parse_log_prob, num_kept = sum_below(edge_log_prob), sum_below(is_kept)
    is_valid = is_valid.reshape(-1)
    logits = jnp.where(action.is_uniform[:, None], 0.0, logits)  # [B, K D]
    log_probs = distributions.masked_log_softmax(logits, is_valid & ~action.earlier_moves)
    # The sum over the samples of a step is the log-probability of the ordered draw without
    # replacement. The credit is not exact: a taken move is lost to the later samples (Kool et al.
    # 2020, arXiv 2002.06043, has weights that avoid this).
    move_log_prob = jnp.take_along_axis(log_probs, action.move[:, None], axis=1)[:, 0]
    # An invalid move is not drawn: it stands for no move, once all valid ones are taken.
    move_log_prob = jnp.where(is_valid[action.move], move_log_prob, 0.0)
    parse_log_prob = parse_log_prob / jnp.sqrt(jnp.maximum(num_kept, 1.0))
    parse_log_prob = jnp.where(is_valid[action.move], parse_log_prob, 0.0)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=1)
    entropy = jnp.where(is_valid[action.move], entropy, 0.0)
    return LogProb(
        move_log_prob[:, None],
        entropy[:, None],
        jnp.ones_like(entropy)[:, None],
        SharedDraw(parse_log_prob[:, None], action.parse[0][moved_group][:, None]),
    )


_LEARNER = {"algorithm": "walk", "entropy_weight": 0.0, "num_samples": 32, "learning_rate": 3e-3}
RECIPE = base.Recipe(
    make,
    {
        "pretrained": base.Variant({}, _LEARNER, shipped=("makespan",)),
        "untrained": base.Variant({}, _LEARNER),
    },
    inputs.read_operations,
)
