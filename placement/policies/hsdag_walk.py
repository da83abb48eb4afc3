"""HSDAG as a decision process: after Duan et al. (NeurIPS 2024, arXiv 2405.14185), with costs.

The state is a placement. An action takes one group of operations and puts it on a device; the rest
stays where it is. With the paper's parts, coarsening, features, a representation and groups that
are learned together, a device for each group and reinforcement, in this order:

    x_v     the paper's features of v (section 2.2), what v costs and where it stands in the graph,
            and where the schedule of the placement has it: start, length, slack, device
    z       a graph network over x, along edges and against them, with what crossing an edge costs
    score   MLP[ z_u * z_v, edge ] + w log( 1/5 + delay over the median )
    parse   sampled by the scores (`placement.policies.sampled_parsing`); one for all samples
    v       ~ softmax over operations of MLP[ z_v ]
    level   ~ softmax over the parse's levels of b; the group is that of v at this level
    device  ~ softmax over devices d of MLP[ mean z of the group, y(group, d) ]

where y is what the group computes on d and how much more than at best, its traffic with d, its
share that is there already, and how busy d is. Half of the samples leave out what is on other
devices than v. Nothing has a size that depends on the number of devices.

Departures from the paper: groups are sampled, so that they are explored as the devices are; one
group moves at a time, of any level; the state follows what was sampled; the policy sees costs and
the schedule. The log-probability of a sample counts of the parse what the members of its group
keep, over the root of their number: what others keep hardly matters to it, and a sum over hundreds
would drown the choice of the device.
"""

from typing import Any, NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement.graphs.features import DEFAULT_BLOCKS
from placement.policies import base, distributions, encoders, sampled_parsing, scheduler_tables
from placement.simulators import timing
from placement.simulators.timing import Timing
from placement.simulators.view import CostView
from placement.types import Array, LogProb, Params, Policy, Problem, Sample

_LEAST_DELAY = 0.2  # of an edge, in medians, beside its own


class Action(NamedTuple):
    """What B samples do to the placement before them; the parse is the same for all."""

    before: Array  # int32 [B, N]
    kept: Array  # int32 [B, L, N], of `sampled_parsing.Parse`
    root: Array  # int32 [B, L + 1, N]
    anchor: Array  # int32 [B]: the operation whose group moves
    level: Array  # int32 [B]
    from_one: Array  # bool [B]: only what is on the anchor's device
    device: Array  # int32 [B]


class _Seen(NamedTuple):
    """What the network computes of a placement, for all samples."""

    z: Array  # float32 [N, H]
    score: Array  # float32 [E]
    anchor: Array  # float32 [N]: log-probabilities
    delay: Array  # float32 [E]: mean, in units
    load: Array  # float32 [D]: share of the latency that a device computes


class _Network(nn.Module):
    """The parts of the policy; H is `hidden_size`."""

    hidden_size: int
    num_layers: int
    levels: int

    def setup(self) -> None:
        width = self.hidden_size
        self.embed = encoders.MLP((width, width))
        self.layers = [encoders.Directed(width) for _ in range(self.num_layers)]
        self.of_edge = nn.Dense(width)
        self.scorer = nn.Dense(1, use_bias=False)  # of scores only differences matter
        self.delay_weight = self.param("delay_weight", nn.initializers.ones, ())
        small = nn.initializers.variance_scaling(0.01, "fan_in", "truncated_normal")
        self.anchor = nn.Dense(1, kernel_init=small, use_bias=False)
        self.level = self.param("level", nn.initializers.zeros, (self.levels + 1,))
        self.of_group, self.of_device = nn.Dense(width), nn.Dense(width, use_bias=False)
        self.choice = nn.Dense(1, kernel_init=small, use_bias=False)

    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Calls every part, for `init`."""
        before = jnp.zeros(graph.nodes["mask"].shape, jnp.int32)
        seen = self.see(graph, before, timing.timing(graph.globals.simulator, before))
        group = jnp.ones((1, len(before)))
        able = jnp.ones((1, graph.globals.compute_s.shape[1]), bool)
        return self.levels_of(before[None]).sum() + self.devices(graph, seen, before, group, able)

    def see(self, graph: jraph.GraphsTuple, before: Array, times: Timing) -> _Seen:
        """Of a placement int32 [N] and its schedule."""
        costs: CostView[scheduler_tables.Tables] = graph.globals
        unit_s, mask = costs.own.unit_s, graph.nodes["mask"]
        delay_s = jnp.asarray(costs.delay_s)
        num_devices = delay_s.shape[-1]
        mean = delay_s.sum(axis=(1, 2)) / max(1, num_devices * (num_devices - 1)) / unit_s
        there = graph.edges["mask"]
        u, v = jnp.asarray(graph.senders), jnp.asarray(graph.receivers)
        now = delay_s[jnp.arange(len(u)), before[u], before[v]] / unit_s
        edge = jnp.stack([jnp.log1p(mean), jnp.log1p(now), before[u] != before[v]], axis=-1)
        node, load = _of_schedule(costs, before, times)
        x = jnp.concatenate([graph.nodes["features"], costs.own.node, node], axis=-1)
        z = self.embed(x)
        for layer in self.layers:
            z = layer(graph, z, edge)
        median = jnp.nanmedian(jnp.where(there & (mean > 0), mean, jnp.nan))
        delay = mean / jnp.where(jnp.isfinite(median), median, 1.0)
        prior = self.delay_weight * jnp.log(_LEAST_DELAY + delay)
        of_edge = jax.nn.relu(self.of_edge(jnp.concatenate([z[u] * z[v], edge], axis=-1)))
        score = self.scorer(of_edge)[:, 0] + prior
        anchor = jnp.where(mask, self.anchor(z)[:, 0], -1e9)
        return _Seen(z, score, jax.nn.log_softmax(anchor), mean, load)

    def levels_of(self, root: Array) -> Array:
        """Log-probabilities float32 [L + 1] of levels, of those at which a parse still grew."""
        grew = (root[1:] != root[:-1]).any(axis=1)
        there = jnp.concatenate([jnp.ones(1, bool), grew])
        return jax.nn.log_softmax(jnp.where(there, self.level, -1e9))

    def devices(
        self, graph: jraph.GraphsTuple, seen: _Seen, before: Array, group: Array, able: Array
    ) -> Array:
        """Log-probabilities float32 [B, D], of groups float32 [B, N] of ones and zeros."""
        costs: CostView[scheduler_tables.Tables] = graph.globals
        compute_s = jnp.asarray(costs.compute_s)
        num_devices = compute_s.shape[1]
        count = jnp.maximum(group.sum(axis=1, keepdims=True), 1.0)
        onto = jax.nn.one_hot(before, num_devices)  # [N, D]
        compute = group @ compute_s / costs.own.unit_s
        least = compute.min(axis=1, keepdims=True)
        u, v = jnp.asarray(graph.senders), jnp.asarray(graph.receivers)
        inside_u, inside_v = group[:, u], group[:, v]
        traffic = (inside_u * (1 - inside_v)) @ (seen.delay[:, None] * onto[v])
        traffic += (inside_v * (1 - inside_u)) @ (seen.delay[:, None] * onto[u])
        total = traffic.sum(axis=1, keepdims=True)
        here = group @ onto / count
        y = jnp.stack(
            [
                jnp.log1p(compute),
                (compute - least) / (compute + least + 1e-6),
                traffic / (total + 1e-6),
                jnp.log1p(traffic),
                here,
                jnp.broadcast_to(seen.load, here.shape),
            ],
            axis=-1,
        )
        device = jnp.broadcast_to(jnp.asarray(costs.own.device), (*here.shape, 7))
        of_group = self.of_group(group @ seen.z / count)[:, None]
        hidden = jax.nn.relu(of_group + self.of_device(jnp.concatenate([y, device], axis=-1)))
        return distributions.masked_log_softmax(self.choice(hidden)[..., 0], able)


def _of_schedule(costs: CostView[Any], before: Array, times: Timing) -> tuple[Array, Array]:
    """Where operations stand in a schedule, float32 [N, 5], and the devices' loads [D]."""
    latency_s = jnp.maximum(times.latency_s, jnp.finfo(jnp.float32).tiny)
    compute_s = jnp.asarray(costs.compute_s)
    lasts_s = times.finish_s - times.start_s
    onto = jax.nn.one_hot(before, compute_s.shape[1])
    load = lasts_s @ onto / latency_s
    slower = jnp.log(jnp.maximum(lasts_s, 1e-12) / jnp.maximum(compute_s.min(axis=1), 1e-12))
    columns = (
        *(times.start_s / latency_s, lasts_s / latency_s, times.slack_s / latency_s),
        *(load[before], jnp.clip(slower, 0.0, 5.0)),
    )
    return jnp.stack(columns, axis=-1), load


def make(
    *,
    num_devices: int,
    hidden_size: int = 32,
    num_layers: int = 2,
    levels: int = 12,
) -> Policy:
    """Makes the policy; its graphs carry `scheduler_tables.view` as their globals.

    The parameters do not depend on the number of devices, which the graph tells.

    Args:
      num_devices: D, of the graphs.
      hidden_size: H, of embeddings and of the MLPs.
      num_layers: of the graph network.
      levels: L, of a parse.
    """
    del num_devices
    network = _Network(hidden_size, num_layers, levels)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        return network.init(key, _runnable(graph))

    def see(params: Params, graph: jraph.GraphsTuple, before: Array) -> _Seen:
        times = timing.timing(graph.globals.simulator, before)
        return cast(_Seen, network.apply(params, graph, before, times, method="see"))

    def devices(
        params: Params, graph: jraph.GraphsTuple, seen: _Seen, action: Action, member: Array
    ) -> Array:
        able = jnp.asarray(graph.nodes["allowed"])
        elsewhere = action.before[0][:, None] != jnp.arange(able.shape[1])
        some = (member[..., None] & (able & elsewhere)).any(axis=1)
        group = member.astype(jnp.float32)
        return cast(
            Array,
            network.apply(params, graph, seen, action.before[0], group, some, method="devices"),
        )

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
        graph = _runnable(graph)
        for_parse, for_rest = jax.random.split(key)
        # One draw of all, as every one takes half a second to compile.
        uniform = jax.random.uniform(for_rest, (4, batch))
        at = jnp.asarray(before)[0]
        seen = see(params, graph, at)
        parse = sampled_parsing.draw(for_parse, seen.score, _edges(graph), levels)
        of_levels = cast(Array, network.apply(params, parse.root, method="levels_of"))
        action = Action(
            before=jnp.asarray(before),
            kept=jnp.broadcast_to(parse.kept, (batch, *parse.kept.shape)),
            root=jnp.broadcast_to(parse.root, (batch, *parse.root.shape)),
            anchor=_drawn(seen.anchor, uniform[0]),
            level=_drawn(of_levels, uniform[1]),
            from_one=uniform[2] < 0.5,
            device=jnp.zeros(batch, jnp.int32),
        )
        group, member = _groups(graph, action)
        of_devices = devices(params, graph, seen, action, member)
        action = action._replace(device=_drawn(of_devices, uniform[3]))
        able = jnp.asarray(graph.nodes["allowed"])[:, action.device].T
        placement = jnp.where(member & able, action.device[:, None], action.before)
        now = _scored(seen, of_levels, of_devices, graph, action, group)
        return Sample(placement[:, None], now.log_prob, now.entropy, _with_steps(action))

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        return improve(params, key, graph, None, num_samples)

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        graph = _runnable(graph)
        action = Action(*(leaf[:, 0] for leaf in drawn.latent))
        seen = see(params, graph, action.before[0])
        of_levels = cast(Array, network.apply(params, action.root[0], method="levels_of"))
        group, member = _groups(graph, action)
        of_devices = devices(params, graph, seen, action, member)
        return _scored(seen, of_levels, of_devices, graph, action, group)

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        return sample(params, jax.random.key(0), graph, 1).placement[0, 0]

    return Policy(init, sample, log_prob, greedy, improve)


def _drawn(log_probs: Array, uniform: Array) -> Array:
    """Draws int32 [B] by uniform [B], of log-probabilities [K] or [B, K]."""
    so_far = jnp.cumsum(jnp.exp(log_probs), axis=-1)
    # A little less than all, lest rounding choose beyond the last possible one.
    limit = uniform * so_far[..., -1] * (1 - 1e-6)
    return (so_far <= limit[:, None]).sum(axis=-1, dtype=jnp.int32)


def _runnable(graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
    """With no time for what cannot be, whose inf would make all times inf."""
    costs = graph.globals
    each = costs.compute_s, costs.delay_s
    compute_s, delay_s = (jnp.where(jnp.isfinite(x), x, 0.0) for x in map(jnp.asarray, each))
    return graph._replace(globals=costs._replace(compute_s=compute_s, delay_s=delay_s))


def _edges(graph: jraph.GraphsTuple) -> sampled_parsing.Edges:
    ends = jnp.asarray(graph.senders), jnp.asarray(graph.receivers)
    return sampled_parsing.Edges(*ends, graph.edges["mask"], len(graph.nodes["mask"]))


def _groups(graph: jraph.GraphsTuple, action: Action) -> tuple[Array, Array]:
    """The groups of the parse, bool [B, N], and what of them moves."""
    root = action.root[0][action.level]
    anchors = jnp.take_along_axis(root, action.anchor[:, None], axis=1)
    group = root == anchors
    device = jnp.take_along_axis(action.before, action.anchor[:, None], axis=1)
    source = ~action.from_one[:, None] | (action.before == device)
    return group, group & source & jnp.asarray(graph.nodes["mask"])


def _scored(
    seen: _Seen,
    of_levels: Array,
    of_devices: Array,
    graph: jraph.GraphsTuple,
    action: Action,
    group: Array,
) -> LogProb:
    parse = sampled_parsing.Parse(action.root[0], action.kept[0])
    kept = sampled_parsing.log_prob(seen.score, _edges(graph), parse)
    below = jnp.arange(len(kept)) < action.level[:, None]
    of_group = group.astype(jnp.float32)
    some = (parse.kept < 2 * len(seen.score)).astype(jnp.float32)
    total = jnp.where(below, of_group @ kept.T, 0.0).sum(axis=1)
    count = jnp.where(below, of_group @ some.T, 0.0).sum(axis=1)
    chosen = jnp.take_along_axis(of_devices, action.device[:, None], axis=1)[:, 0]
    value = seen.anchor[action.anchor] + of_levels[action.level] + chosen
    value += total / jnp.sqrt(jnp.maximum(count, 1.0))
    of_anchor = -(jnp.exp(seen.anchor) * seen.anchor).sum()
    of_level = -(jnp.exp(of_levels) * of_levels).sum()
    entropy = of_anchor + of_level - (jnp.exp(of_devices) * of_devices).sum(axis=1)
    return LogProb(value[:, None], entropy[:, None], jnp.full((len(value), 1), 3.0))


def _with_steps(action: Action) -> Action:
    return Action(*(leaf[:, None] for leaf in action))


def read(problem: Problem, features: tuple[str, ...] = DEFAULT_BLOCKS) -> base.PolicyInput:
    """Reads a node for every operation, of many one for each of some groups, with its view."""
    return base.operations(problem, features, scheduler_tables.view)
