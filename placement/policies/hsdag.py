"""HSDAG as a decision process: after Duan et al. (NeurIPS 2024, arXiv 2405.14185), with costs.

The state is a placement. An action takes one group of operations and puts it on a device; the rest
stays where it is. With the paper's parts, coarsening, features, a representation and groups that
are learned together, a device for each group and reinforcement, in this order:

    x_v     the paper's features of v (section 2.2), what v costs and where it stands in the graph,
            and where the schedule of the placement has it: start, length, slack, device
    z       a graph network over x, along edges and against them, with what crossing an edge costs
    edges   those of the graph, and from each operation to the next on its device
    score   MLP[ z_u * z_v, edge ] + w log( 1/5 + delay over the median )
    parses  sampled by the scores (`placement.policies.sampled_parsing`), one of the graph's edges
            and one of all
    groups  K, each of an operation and a level of a parse; half of them leave out what is on other
            devices than the operation
    move    ~ softmax over groups g and devices d of MLP[ mean z of g, what moving g to d does ]

Both parses and the groups are common to the B samples of a step, whose moves are drawn one after
another, each among those that are left: B different ones of the K D there are. A policy that has
learned to gain a little with small groups would not try the large ones any more, without which no
network leaves a device where many of its operations share weights: hence the last samples, which
are drawn uniformly, and from which the choice of moves learns nothing. Nothing has a size that
depends on the number of devices.

Departures from the paper: groups are sampled, so that they are explored as the devices are; one
group moves at a time, of any level; the state follows what was sampled; the policy sees costs and
the schedule (`placement.policies.moves`). The log-probability of a sample counts of its parse what
the members of its group keep, over the root of their number: what others keep hardly matters to
it, and a sum over hundreds would drown the choice of the move.

The published method and the one that its authors released are `placement.policies.hsdag_published`.
"""

import functools
from typing import Any, NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement.errors import UserError
from placement.graphs.features import DEFAULT_BLOCKS
from placement.instance import Instance
from placement.policies import (
    base,
    distributions,
    encoders,
    hsdag_published,
    moves,
    sampled_parsing,
    scheduler_tables,
)
from placement.policies.cost_features import CostView
from placement.simulators import makespan
from placement.simulators.makespan import Timing
from placement.types import Array, LogProb, Params, Policy, Sample

_LEAST_DELAY = 0.2  # of an edge, in medians, beside its own
_LAST = -1e30  # the logit of what does nothing: finite, as what is chosen has none
_NEXT = -0.5  # the initial score of being next on a device


class Action(NamedTuple):
    """What B samples do to the placement before them; all but the last two are the same for all."""

    before: Array  # int32 [B, N]
    times: Timing  # float32 [B, N] each
    kept: Array  # int32 [B, P, L, N], of `sampled_parsing.Parse`, of P parses
    root: Array  # int32 [B, P, L + 1, N]
    parse: Array  # int32 [B, K]: of each group, as what follows
    anchor: Array  # int32 [B, K]: an operation of it
    level: Array  # int32 [B, K]
    from_one: Array  # bool [B, K]: only what is on the anchor's device
    chosen: Array  # int32 [B]: D times the group, and the device
    taken: Array  # bool [B, K D]: what samples before this one chose
    uniformly: Array  # bool [B]: whether it was drawn from what is left, all alike


class _Seen(NamedTuple):
    """What the network makes of a placement, for all samples."""

    z: Array  # float32 [N, H]
    # The E of the graph and N of the schedule; the mask is that of each parse, bool [P, E + N].
    edges: sampled_parsing.Edges
    score: Array  # float32 [E + N]
    placed: moves.Placed


class _Network(nn.Module):
    """The parts of the policy; H is `hidden_size`."""

    hidden_size: int
    num_layers: int

    def setup(self) -> None:
        width = self.hidden_size
        self.embed = encoders.MLP((width, width))
        self.layers = [encoders.Directed(width) for _ in range(self.num_layers)]
        self.of_edge = nn.Dense(width)
        self.scorer = nn.Dense(1, use_bias=False)  # of scores only differences matter
        self.delay_weight = self.param("delay_weight", nn.initializers.ones, ())
        self.next_weight = self.param("next_weight", nn.initializers.constant(_NEXT), ())
        small = nn.initializers.variance_scaling(0.01, "fan_in", "truncated_normal")
        self.of_group, self.of_device = nn.Dense(width), nn.Dense(width, use_bias=False)
        self.hidden = nn.Dense(width)
        self.choice = nn.Dense(1, kernel_init=small, use_bias=False)

    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Calls every part, for `init`."""
        before = jnp.zeros(graph.nodes["mask"].shape, jnp.int32)
        seen = self.see(graph, before, makespan.timing(graph.globals.simulator, before))
        every = moves.groups(graph, before, jnp.ones((1, len(before)), bool))
        return self.choose(graph, seen, every)

    def see(self, graph: jraph.GraphsTuple, before: Array, times: Timing) -> _Seen:
        """Reads a placement int32 [N] and its schedule."""
        costs: CostView[scheduler_tables.Tables] = graph.globals
        placed = moves.placed(graph, before, times, costs.own.unit_s)
        u, v = jnp.asarray(graph.senders), jnp.asarray(graph.receivers)
        crosses = before[u] != before[v]
        edge = jnp.stack([jnp.log1p(placed.delay), jnp.log1p(placed.now), crosses], axis=-1)
        x = [graph.nodes["features"], costs.own.node, _of_schedule(costs, placed)]
        z = self.embed(jnp.concatenate(x, axis=-1))
        for layer in self.layers:
            z = layer(graph, z, edge)
        edges = _edges(graph, before, times)
        size = len(before)
        delay = placed.delay
        some = graph.edges["mask"] & (delay > 0)
        median = jnp.nanmedian(jnp.where(some, delay, jnp.nan))
        median = jnp.where(jnp.isfinite(median), median, 1.0)
        prior = self.delay_weight * jnp.log(_LEAST_DELAY + delay / median)
        prior = jnp.concatenate([prior, jnp.broadcast_to(self.next_weight, size)])
        is_next = (jnp.arange(len(prior)) >= len(u))[:, None]
        ends = z[edges.senders] * z[edges.receivers]
        of_edge = jnp.concatenate([ends, jnp.pad(edge, ((0, size), (0, 0))), is_next], axis=-1)
        score = self.scorer(jax.nn.relu(self.of_edge(of_edge)))[:, 0] + prior
        return _Seen(z, edges, score, placed)

    def choose(self, graph: jraph.GraphsTuple, seen: _Seen, groups: moves.Groups) -> Array:
        """Computes the logits float32 [K D] of moves."""
        of_group, of_move = moves.features(graph, seen.placed, groups)
        group = groups.member.astype(jnp.float32)
        mean = group @ seen.z / jnp.maximum(group.sum(axis=1, keepdims=True), 1.0)
        device = jnp.asarray(graph.globals.own.device)
        device = jnp.broadcast_to(device, (len(group), *device.shape))
        hidden = self.of_group(jnp.concatenate([mean, of_group], axis=-1))[:, None]
        hidden = hidden + self.of_device(jnp.concatenate([of_move, device], axis=-1))
        hidden = jax.nn.relu(self.hidden(jax.nn.relu(hidden)))
        return self.choice(hidden)[..., 0].reshape(-1)


def _of_schedule(costs: CostView[Any], placed: moves.Placed) -> Array:
    """Where operations stand in the schedule, float32 [N, 5]."""
    times = placed.times
    latency_s = jnp.maximum(times.latency_s, jnp.finfo(jnp.float32).tiny)
    lasts_s, least_s = times.finish_s - times.start_s, jnp.asarray(costs.compute_s).min(axis=1)
    slower = jnp.log(jnp.maximum(lasts_s, 1e-12) / jnp.maximum(least_s, 1e-12))
    columns = (
        *(times.start_s / latency_s, lasts_s / latency_s, times.slack_s / latency_s),
        *(placed.load[placed.before], jnp.clip(slower, 0.0, 5.0)),
    )
    return jnp.stack(columns, axis=-1)


def _edges(graph: jraph.GraphsTuple, before: Array, times: Timing) -> sampled_parsing.Edges:
    """Those of the graph, and from each operation to the next on its device: for two parses."""
    mask = jnp.asarray(graph.nodes["mask"])
    order = jnp.lexsort((jnp.where(mask, times.start_s, jnp.inf), before)).astype(jnp.int32)
    following = jnp.roll(order, -1)
    there = (before[order] == before[following]) & mask[order] & mask[following]
    there &= jnp.arange(len(order)) < len(order) - 1
    of_graph = jnp.asarray(graph.edges["mask"])
    masks = [jnp.concatenate([of_graph, others]) for others in (jnp.zeros_like(there), there)]
    return sampled_parsing.Edges(
        jnp.concatenate([jnp.asarray(graph.senders), order]),
        jnp.concatenate([jnp.asarray(graph.receivers), following]),
        jnp.stack(masks),
        len(mask),
    )


def make(
    *,
    num_devices: int,
    hidden_size: int = 32,
    num_layers: int = 2,
    levels: int = 8,
    groups: int = 128,
    uniform: float = 0.125,
) -> Policy:
    """Makes the policy; its graphs carry `scheduler_tables.view` as their globals.

    The parameters do not depend on the number of devices, which the graph tells.

    Args:
      num_devices: D, of the graphs.
      hidden_size: H, of embeddings and of the MLPs.
      num_layers: of the graph network.
      levels: L, of a parse.
      groups: K, of which one moves; more, where there are more samples.
      uniform: share of the samples whose move is drawn uniformly, rounded down.

    Raises:
      UserError: `uniform` is no share below 1.
    """
    if not 0 <= uniform < 1:
        raise UserError(f"{uniform=}: give a share below 1")
    del num_devices
    network = _Network(hidden_size, num_layers)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        return network.init(key, _runnable(graph))

    def see(params: Params, graph: jraph.GraphsTuple, before: Array, times: Timing) -> _Seen:
        return cast(_Seen, network.apply(params, graph, before, times, method="see"))

    def choose(params: Params, graph: jraph.GraphsTuple, seen: _Seen, of: moves.Groups) -> Array:
        return cast(Array, network.apply(params, graph, seen, of, method="choose"))

    def improve(
        params: Params,
        key: chex.PRNGKey,
        graph: jraph.GraphsTuple,
        before: Array | None,
        batch: int,
    ) -> Sample:
        if before is None:
            first = jnp.argmax(jnp.asarray(graph.nodes["allowed"]), axis=1).astype(jnp.int32)
            before = jnp.tile(first, (batch, 1))
        graph, before = _runnable(graph), jnp.asarray(before)
        num_devices, num_groups = graph.globals.compute_s.shape[1], max(groups, batch)
        num_uniform = int(uniform * batch)
        ways = 1 + (num_uniform > 0)  # of drawing moves
        for_parses, for_rest = jax.random.split(key)
        # One draw of all, as every one takes half a second to compile.
        shape = 3 + ways * num_devices, num_groups
        chances = jax.random.uniform(for_rest, shape, minval=1e-20)
        times = makespan.timing(graph.globals.simulator, before[0])
        seen = see(params, graph, before[0], times)
        parses = jax.vmap(
            lambda key, mask: sampled_parsing.draw(
                key, seen.score, seen.edges._replace(mask=mask), levels
            )
        )(jax.random.split(for_parses, len(seen.edges.mask)), seen.edges.mask)
        grew = (parses.root[:, 1:] != parses.root[:, :-1]).any(axis=(0, 2))
        of_all = Action(
            before[0],
            times,
            parses.kept,
            parses.root,
            parse=jnp.arange(num_groups, dtype=jnp.int32) % len(parses.root),
            anchor=_drawn(jnp.asarray(graph.nodes["mask"]), chances[0]),
            level=_drawn(jnp.concatenate([jnp.ones(1, bool), grew]), chances[1]),
            from_one=chances[2] < 0.5,
            chosen=jnp.zeros((), jnp.int32),
            taken=jnp.zeros(num_groups * num_devices, bool),
            uniformly=jnp.zeros((), bool),
        )
        action: Action = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), of_all)
        group, of = _groups(graph, action)
        logits = choose(params, graph, seen, of)
        # The largest of perturbed logits are draws without replacement (Kool et al. 2019).
        noise = chances[3:].reshape(ways, num_devices, num_groups).swapaxes(1, 2)
        gumbel = -jnp.log(-jnp.log(noise.reshape(ways, -1)))
        noise = jnp.where(of.able.reshape(-1), gumbel, _LAST)
        _, chosen = jax.lax.top_k(logits + noise[0], batch - num_uniform)
        if num_uniform:
            left = noise[1].at[chosen].set(-jnp.inf)
            chosen = jnp.concatenate([chosen, jax.lax.top_k(left, num_uniform)[1]])
        drawn = jax.nn.one_hot(chosen, len(logits), dtype=jnp.int32)
        taken = (jnp.cumsum(drawn, axis=0) - drawn) > 0
        uniformly = jnp.arange(batch) >= batch - num_uniform
        action = action._replace(chosen=chosen.astype(jnp.int32), taken=taken, uniformly=uniformly)
        nth, device = action.chosen // num_devices, action.chosen % num_devices
        does = of.able.reshape(-1)[chosen][:, None]
        moved = does & of.member[nth] & jnp.asarray(graph.nodes["allowed"])[:, device].T
        placement = jnp.where(moved, device[:, None], before)
        now = _scored(seen, logits, action, group, of)
        latent = jax.tree.map(lambda x: x[:, None], action)
        return Sample(placement[:, None], now.log_prob, now.entropy, latent)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        return improve(params, key, graph, None, num_samples)

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        graph = _runnable(graph)
        action: Action = jax.tree.map(lambda x: x[:, 0], drawn.latent)
        times = jax.tree.map(lambda x: x[0], action.times)
        seen = see(params, graph, action.before[0], times)
        group, of = _groups(graph, action)
        logits = choose(params, graph, seen, of)
        return _scored(seen, logits, action, group, of)

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        return sample(params, jax.random.key(0), graph, 1).placement[0, 0]

    return Policy(init, sample, log_prob, greedy, improve)


def _drawn(there: Array, uniform: Array) -> Array:
    """Draws int32 [K], by uniform [K], of those numbers for which bool [M] is True."""
    nth = (uniform * there.sum()).astype(jnp.int32)
    return jnp.searchsorted(jnp.cumsum(there), nth + 1).astype(jnp.int32)


def _runnable(graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
    """With no time for what cannot be, whose inf would make all times inf."""
    costs = graph.globals
    each = costs.compute_s, costs.delay_s
    compute_s, delay_s = (jnp.where(jnp.isfinite(x), x, 0.0) for x in map(jnp.asarray, each))
    return graph._replace(globals=costs._replace(compute_s=compute_s, delay_s=delay_s))


def _groups(graph: jraph.GraphsTuple, action: Action) -> tuple[Array, moves.Groups]:
    """The groups of the parses, bool [K, N], and what of them moves."""
    before, anchor = action.before[0], action.anchor[0]
    root = action.root[0][action.parse[0], action.level[0]]
    group = root == jnp.take_along_axis(root, anchor[:, None], axis=1)
    source = ~action.from_one[0][:, None] | (before == before[anchor][:, None])
    member = group & source & jnp.asarray(graph.nodes["mask"])
    return group, moves.groups(graph, before, member)


def _scored(seen: _Seen, logits: Array, action: Action, group: Array, of: moves.Groups) -> LogProb:
    nth = action.chosen // of.able.shape[1]
    parses = sampled_parsing.Parse(action.root[0], action.kept[0])
    kept = jax.vmap(
        lambda mask, parse: sampled_parsing.log_prob(
            seen.score, seen.edges._replace(mask=mask), parse
        )
    )(seen.edges.mask, parses)  # [P, L, N]
    some = (parses.kept < 2 * len(seen.score)).astype(jnp.float32)
    total, count = _below(kept, action, group, nth), _below(some, action, group, nth)
    able = of.able.reshape(-1)
    logits = jnp.where(action.uniformly[:, None], 0.0, logits)
    log_probs = distributions.masked_log_softmax(logits, able & ~action.taken)
    own = jnp.take_along_axis(log_probs, action.chosen[:, None], axis=1)[:, 0]
    # Where there are fewer moves than samples, the last of these do nothing.
    value = jnp.where(able[action.chosen], own, 0.0) + total / jnp.sqrt(jnp.maximum(count, 1.0))
    entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=1)
    return LogProb(*(x[:, None] for x in (value, entropy, jnp.ones_like(value))))


def _below(of_slots: Array, action: Action, group: Array, nth: Array) -> Array:
    """Sums numbers [P, L, N] over each sample's group and the levels of its parse below it."""
    of_levels = jnp.einsum("bn,pln->bpl", group[nth].astype(jnp.float32), of_slots)
    own = jnp.take_along_axis(of_levels, action.parse[0][nth][:, None, None], axis=1)[:, 0]
    return jnp.where(jnp.arange(own.shape[1]) < action.level[0][nth][:, None], own, 0.0).sum(axis=1)


def read(
    problem: Instance,
    features: tuple[str, ...] = DEFAULT_BLOCKS,
    num_nodes: int | None = None,
    num_edges: int | None = None,
    specifications: bool = True,
) -> base.PolicyInput:
    """Reads a node for every operation, of many one for each of some groups, with its view.

    Args:
      problem: what is to be placed.
      features, num_nodes, num_edges: as of `base.operations`.
      specifications: False withholds those of devices, see `scheduler_tables.view`.
    """
    view = functools.partial(scheduler_tables.view, specifications=specifications)
    return base.operations(problem, features, view, num_nodes, num_edges)


_LEARNER = {"algorithm": "walk", "entropy_weight": 0.0, "num_samples": 32, "learning_rate": 3e-3}
RECIPE = base.Recipe(
    make,
    {
        "tuned": base.Variant({}, _LEARNER, shipped=True),
        "untrained": base.Variant({}, _LEARNER),
        **hsdag_published.VARIANTS,
    },
    read,
)
