"""A list scheduler that has learned what to weigh: for graphs, and devices, never seen before.

An episode places all operations T times over. Every time they are taken in the simulator's order of
priority, and v goes to a device d with probability softmax over d of

    logit(v, d) = - ( x_0(v, d) + sum_i w_i x_i(v, d) ) / tau + MLP[ x'(v, d), e_v, c_d, z ]

    w   = w' + w'' * z_1..7,   log tau = a + b * z_0,   z ~ N(0, I), drawn anew every time
    e_v = GCN of what the operation costs and where it stands in the graph
    c_d = MLP of what the device is: its speed by class of operation, its memory, its link
    x'  = x / (1 + x)

where x_i(v, d) is what placing v on d means under the schedule so far, less the least over d, in
units of the graph's median operation, so that nothing has a scale of its own:

    x_0  the earliest finish of v on d, which alone would be HEFT (Topcuoglu et al. 2002)
    x_1  the least time from there to the end, PEFT's optimistic cost (Arabnejad and Barbosa 2014)
    x_2  what v's inputs take to get to d, summed
    x_3  what v computes on d
    x_4  how long d would wait for them, idle
    x_5  the longest way of v's output to its readers, where the placement before had them
    x_6  the same, summed
    x_7  1 where the placement before had v elsewhere

The last three are what makes a step an improvement of the placement before it: a list scheduler
looks back alone, and puts an operation where its inputs are, not where its readers will be. The
first step of an episode has no placement before it, and they are zero.

The numbers z are a style: how far to look ahead, how dear a transfer is, how much to dare. They
differ from sample to sample, so that the best of many samples is much better than their mean. A
sample keeps them as `latent`, float32 [T, 8], and its log-probability is that of the placement
given them. What is learned is w', a and the MLP, which is zero at the beginning. How widely styles
differ, w'' and b, is set by hand and stays: training would narrow it to what suits the families
that it sees, and take from others the variety that the best of many lives on.

Nothing here has a size that depends on the number of devices, and operations have no names and
types: a policy that was trained on some graphs and devices places others. `graph.globals` must be
`scheduler_tables.view(problem, ...)`.

Memory: a device without room for v is no candidate, unless none has room. Co-located operations
choose each for itself, and follow the first of them in what is evaluated.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement.instance import Instance
from placement.policies import base, encoders, scheduler_tables
from placement.policies.cost_features import CostView
from placement.simulators import makespan, schedule, tensors
from placement.types import Array, LogProb, Params, Policy, Sample

NUM_FEATURES = 8
# The weights' means and spreads over styles of x_1 to x_7, and those of log tau.
_WEIGHTS = (0.4, 0.6, 0.5, 0.0, 0.4, 0.2, 0.6)
_SPREADS = (0.4, 1.0, 0.6, 0.3, 0.5, 0.4, 0.8)
_LOG_TAU, _LOG_TAU_SPREAD, _LEAST_LOG_TAU = -2.0, 1.5, -7.0


class _Style(NamedTuple):
    """How B placements are made."""

    weights: Array  # float32 [F, B]: the first is 1
    tau: Array  # float32 [B]
    hidden: Array  # float32 [H, B]


class _Network(nn.Module):
    """The parts of a logit; `hidden_size` is H.

    Episodes are the last axis of all that every step computes, which a processor's vectors are
    filled with: there are many, and of features, devices and H only a few.
    """

    hidden_size: int

    def setup(self) -> None:
        self.embed = encoders.MLP((self.hidden_size, self.hidden_size))
        self.gcn = encoders.GCN(self.hidden_size)
        self.of_node = nn.Dense(self.hidden_size)
        self.of_device = nn.Dense(self.hidden_size, use_bias=False)
        self.of_style = nn.Dense(self.hidden_size, use_bias=False)
        shape = self.hidden_size, NUM_FEATURES
        self.of_features = self.param("of_features", nn.initializers.lecun_normal(1, 0), shape)
        self.out = self.param("out", nn.initializers.zeros, self.hidden_size)
        self.weights = self.param("weights", lambda _: jnp.array(_WEIGHTS))
        self.log_tau = self.param("log_tau", lambda _: jnp.float32(_LOG_TAU))

    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Calls every part, for `init`."""
        x = jnp.zeros((NUM_FEATURES, graph.globals.own.device.shape[0], 1))
        style = self.style(jnp.zeros((1, NUM_FEATURES)))
        return self.logits(x, self.encode(graph)[0], style)

    def encode(self, graph: jraph.GraphsTuple) -> Array:
        """Encodes what is known of operations and devices beforehand, [N, D, H]."""
        t: scheduler_tables.Tables = graph.globals.own
        embedded = self.gcn(graph, self.embed(t.node))
        return self.of_node(embedded)[:, None] + self.of_device(jnp.asarray(t.device))

    def style(self, z: Array) -> _Style:
        """Of z [B, NUM_FEATURES]."""
        weights = self.weights + jnp.array(_SPREADS) * z[:, 1:]
        log_tau = self.log_tau + _LOG_TAU_SPREAD * z[:, 0]
        return _Style(
            weights=jnp.concatenate([jnp.ones_like(z[:, :1]), weights], axis=1).T,
            tau=jnp.exp(jnp.maximum(log_tau, _LEAST_LOG_TAU)),
            hidden=self.of_style(z).T,
        )

    def logits(self, x: Array, encoded: Array, style: _Style) -> Array:
        """[..., D, B] of features x [..., F, D, B] and what was encoded [..., D, H]."""
        linear = (x * style.weights[:, None]).sum(axis=-3) / style.tau
        # A quotient and a sum, not a logarithm and a product: half the time of an episode.
        hidden = jnp.einsum("hf,...fdb->...hdb", self.of_features, x / (1.0 + x))
        hidden += jnp.swapaxes(encoded, -1, -2)[..., None] + style.hidden[:, None]
        return (self.out[:, None, None] * jax.nn.relu(hidden)).sum(axis=-3) - linear


# `visit(kept, op [], output [], x [F, D, B], candidate bool [D, B]) -> (device int32 [B], kept)`:
# what becomes of an operation, and what is kept of it; called once for each of its steps, of which
# the last alone counts: `output` is then `op`, else the scratch row N + 1.
_Visit = Callable[[Any, Array, Array, Array, Array], tuple[Array, Any]]


def make(*, num_devices: int, hidden_size: int = 16, episode_steps: int = 3) -> Policy:
    """Makes the policy; its graphs carry `scheduler_tables.view` as their globals.

    The parameters do not depend on the number of devices, which the graph tells.

    Args:
      num_devices: D, of the graphs.
      hidden_size: H, of embeddings and of the MLP.
      episode_steps: T, how often an episode places all operations.
    """
    del num_devices
    network = _Network(hidden_size)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        return network.init(key, _device_put(graph))

    def improve(
        params: Params,
        key: chex.PRNGKey,
        graph: jraph.GraphsTuple,
        before: Array | None,
        batch: int,
    ) -> Sample:
        graph = _device_put(graph)
        before = _no_placement(graph, batch) if before is None else before
        z_key, key = jax.random.split(key)
        z = jax.random.normal(z_key, (batch, NUM_FEATURES))
        return _sample(network, params, key, graph, before, z)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        def step(before: Array, step_key: chex.PRNGKey) -> tuple[Array, Sample]:
            drawn = improve(params, step_key, graph, before, num_samples)
            return drawn.placement[:, 0], drawn

        keys = jax.random.split(key, episode_steps)
        _, drawn = jax.lax.scan(step, _no_placement(graph, num_samples), keys)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf[:, :, 0], 0, 1), drawn)

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        return _log_prob(network, params, _device_put(graph), drawn)

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        graph = _device_put(graph)
        mean_style = jnp.zeros((1, NUM_FEATURES))

        def step(_: Array, before: Array) -> Array:
            return _sample(network, params, None, graph, before, mean_style).placement[:, 0]

        return jax.lax.fori_loop(0, episode_steps, step, _no_placement(graph, 1))[0]

    return Policy(init, sample, log_prob, greedy, improve)


def _no_placement(graph: jraph.GraphsTuple, batch: int) -> Array:
    """Makes what stands for the placement before the first step, which has none: -1, int32 [B, N].

    A step that is told apart by its numbers compiles once with the others.
    """
    return jnp.full((batch, len(graph.nodes["mask"])), -1, jnp.int32)


def _sample(
    network: _Network,
    params: Params,
    key: chex.PRNGKey | None,
    graph: jraph.GraphsTuple,
    before: Array,
    z: Array,
) -> Sample:
    """Draws a step of B episodes in the styles z [B, NUM_FEATURES]; without a key the likeliest."""
    encoded = network.apply(params, graph, method="encode")
    style = network.apply(params, z, method="style")
    decides = jnp.append(jnp.asarray(graph.nodes["mask"]), jnp.zeros(2, bool))
    uniform = None if key is None else jax.random.uniform(key, (len(decides), len(z)))

    def visit(
        kept: tuple[Array, Array], op: Array, output: Array, x: Array, candidate: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        logits = cast(Array, network.apply(params, x, encoded[op], style, method="logits"))
        log_probs = _log_softmax(logits, candidate, axis=0)
        device = _choice(log_probs, None if uniform is None else uniform[op])
        chosen = jnp.take_along_axis(log_probs, device[None], axis=0)[0]
        now = jnp.where(decides[output], jnp.stack([chosen, _entropy(log_probs, axis=0)]), 0.0)
        return device, (kept[0] + now[0], kept[1] + now[1])

    nothing = jnp.zeros(len(z))
    columns = jnp.asarray(before).T
    placement, (log_prob, entropy) = _list_schedule(
        graph, columns, len(z), visit, (nothing, nothing)
    )
    return Sample(placement.T[:, None], log_prob[:, None], entropy[:, None], z[:, None])


def _choice(log_probs: Array, uniform: Array | None) -> Array:
    """Devices int32 [B] of probabilities [D, B], as `uniform` [B] draws; None: the likeliest."""
    if uniform is None:
        return jnp.argmax(log_probs, axis=0).astype(jnp.int32)
    so_far = jnp.cumsum(jnp.exp(log_probs), axis=0)
    # A little less than all, lest rounding choose a device beyond the last possible one.
    return (so_far <= uniform * so_far[-1] * (1 - 1e-6)).sum(axis=0, dtype=jnp.int32)


def _log_prob(
    network: _Network, params: Params, graph: jraph.GraphsTuple, drawn: Sample
) -> LogProb:
    """Scores all steps of all episodes at once, side by side: what each has decided is known.

    What was seen does not depend on the parameters, so that the gradient walks through nothing.
    """
    batch, steps, num_nodes = drawn.placement.shape
    columns = jnp.asarray(drawn.placement).reshape(batch * steps, num_nodes)
    earlier = jnp.roll(columns, 1, axis=0)
    is_first = jnp.arange(batch * steps) % steps == 0
    seen = _seen(graph, columns.T, earlier.T, is_first)
    x, candidate = jax.lax.stop_gradient(seen)
    encoded = network.apply(params, graph, method="encode")
    z = jnp.asarray(drawn.latent).reshape(batch * steps, -1)
    style = network.apply(params, z, method="style")
    logits = cast(Array, network.apply(params, x, encoded, style, method="logits"))
    log_probs = _log_softmax(logits, candidate, axis=1)
    decides = jnp.asarray(graph.nodes["mask"])[:, None]
    device = columns.T[:, None]
    log_prob = jnp.take_along_axis(log_probs, device, axis=1)[:, 0]
    entropy = _entropy(log_probs, axis=1)
    total, spread = (jnp.where(decides, each, 0.0).sum(axis=0) for each in (log_prob, entropy))
    choices = jnp.full((batch, steps), decides.sum().astype(jnp.float32))
    return LogProb(total.reshape(batch, steps), spread.reshape(batch, steps), choices)


def _seen(
    graph: jraph.GraphsTuple, placement: Array, before: Array, is_first: Array
) -> tuple[Array, Array]:
    """Features [N, F, D, B] and candidates [N, D, B] of placements int32 [N, B] in the making."""
    (num_nodes, batch), num_devices = placement.shape, graph.globals.compute_s.shape[1]
    rows, shape = num_nodes + 2, (num_devices, batch)
    put = jax.lax.dynamic_update_index_in_dim

    def visit(
        kept: tuple[Array, Array], op: Array, output: Array, x: Array, candidate: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        return placement[op], (put(kept[0], x, output, 0), put(kept[1], candidate, output, 0))

    kept = jnp.zeros((rows, NUM_FEATURES, *shape)), jnp.ones((rows, *shape), bool)
    _, seen = _list_schedule(graph, jnp.where(is_first, -1, before), batch, visit, kept)
    return jax.tree.map(lambda leaf: leaf[:num_nodes], seen)


class _Schedule(NamedTuple):
    """A schedule in the making, of B placements; two rows beyond the operations' are scratch."""

    device: Array  # int32 [N + 2, B]
    finish: Array  # float32 [N + 2, B]
    free: Array  # float32 [D, B]: when the device has done all that it has
    used: Array  # float32 [D, B]: memory
    arrival: Array  # float32 [D, B]: when the inputs of the operation under way are there
    transfer: Array  # float32 [D, B]: what they take to get there, summed


def _list_schedule(
    graph: jraph.GraphsTuple,
    before: Array,
    batch: int,
    visit: _Visit,
    kept: Any,
) -> tuple[Array, Any]:
    """Places all operations in the order of priority, B times side by side.

    Args:
      graph: with `scheduler_tables.view`.
      before: int32 [N, B], the placement before; -1 where there is none.
      batch: B.
      visit: see `_Visit`.
      kept: what it keeps at the beginning.

    Returns:
      The placements int32 [N, B], and what was kept.
    """
    costs: CostView[scheduler_tables.Tables] = graph.globals
    t, (num_nodes, num_devices) = costs.own, costs.compute_s.shape
    allowed = jnp.asarray(graph.nodes["allowed"])
    simulator = _in_units(costs)
    devices = jnp.arange(num_devices)[:, None]
    leaving = _leaving(costs, before)
    put = jax.lax.dynamic_update_index_in_dim

    def step(i: Array, carry: tuple[_Schedule, Any]) -> tuple[_Schedule, Any]:
        now, kept = carry
        s, compute_of, delay_of = jax.tree.map(lambda leaf: leaf[i], simulator.by_step)
        taken, arrivals = [], []
        for slot in range(schedule.WIDTH):
            sender = s.inputs[slot]
            taken.append(tensors.select(delay_of[slot][:, :, None], now.device[sender]))
            arrivals.append(now.finish[sender] + taken[slot])
        arrival = schedule.accumulate_inputs(s.first, now.arrival, 0.0, arrivals)
        transfer = schedule.accumulate_inputs(s.first, now.transfer, 0.0, taken, jnp.add)
        end = jnp.maximum(arrival, now.free) + compute_of[:, None]
        fits = now.used + t.memory[s.op] <= t.capacity[:, None]
        candidate = allowed[s.op][:, None] & (fits | ~fits.any(axis=0))
        x = _features(t, s.op, end, compute_of, arrival - now.free, transfer, leaving, candidate)
        device, kept = visit(kept, s.op, s.output, x, candidate)
        here = (device == devices) & s.last
        finish = jnp.where(here, end, 0.0).sum(axis=0)
        return _Schedule(
            device=put(now.device, device, s.output, 0),
            finish=put(now.finish, finish, s.output, 0),
            free=jnp.where(here, end, now.free),
            used=now.used + jnp.where(here, t.memory[s.op], 0.0),
            arrival=arrival,
            transfer=transfer,
        ), kept

    nothing, rows = jnp.zeros((num_devices, batch)), (num_nodes + 2, batch)
    start = _Schedule(jnp.zeros(rows, jnp.int32), jnp.zeros(rows), *4 * (nothing,))
    done, kept = jax.lax.fori_loop(0, costs.num_steps, step, (start, kept))
    return done.device[:num_nodes], kept


def _in_units(costs: CostView[scheduler_tables.Tables]) -> makespan.Tables:
    """The simulator in units of the median operation, zero where a device does not support one."""
    t, unit_s = costs.simulator, costs.own.unit_s
    compute_s = jnp.where(jnp.isfinite(t.compute_s), t.compute_s, 0.0)
    return t._replace(compute_s=compute_s / unit_s, delay_s=t.delay_s / unit_s)


def _features(
    t: scheduler_tables.Tables,
    op: Array,
    end: Array,
    compute: Array,
    idle: Array,
    transfer: Array,
    leaving: tuple[Array, ...],
    candidate: Array,
) -> Array:
    """Computes what placing an operation on each device means, [F, D, B], less the least."""
    shape = end.shape
    columns = (
        *(end, t.onward[op][:, None], transfer, compute[:, None], jnp.maximum(idle, 0.0)),
        *(each[op] for each in leaving),
    )
    x = jnp.stack([jnp.broadcast_to(column, shape) for column in columns])
    least = jnp.where(candidate, x, jnp.inf).min(axis=1, keepdims=True)
    return jnp.where(candidate, x - least, 0.0)


def _leaving(costs: CostView[scheduler_tables.Tables], before: Array) -> tuple[Array, ...]:
    """x_5 to x_7, [N, D, B] each, of a placement before, int32 [N, B]; zero where there is none."""
    num_nodes, num_devices = costs.compute_s.shape
    delay = costs.delay_s / costs.own.unit_s
    rows = jnp.concatenate([before, jnp.zeros((1, before.shape[1]), before.dtype)])
    there = rows[costs.receivers]
    way = tensors.select([delay[:, :, d, None] for d in range(num_devices)], there[:, None])
    summed = jraph.segment_sum(way, costs.senders, num_nodes + 1)[:num_nodes]
    longest = jnp.maximum(jraph.segment_max(way, costs.senders, num_nodes + 1)[:num_nodes], 0.0)
    moved = (before[:, None] != jnp.arange(num_devices)[:, None]).astype(jnp.float32)
    return tuple(jnp.where(before[0] < 0, 0.0, x) for x in (longest, summed, moved))


def _log_softmax(logits: Array, candidate: Array, *, axis: int) -> Array:
    """Over the candidates; the others have a probability of zero."""
    return jax.nn.log_softmax(jnp.where(candidate, logits, -1e9), axis=axis)


def _entropy(log_probs: Array, *, axis: int) -> Array:
    return -(jnp.exp(log_probs) * log_probs).sum(axis=axis)


def _device_put(graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
    return jax.tree.map(jnp.asarray, graph)


def read(
    problem: Instance,
    num_nodes: int | None = None,
    num_edges: int | None = None,
    specifications: bool = True,
) -> base.PolicyInput:
    """Reads a node for every operation with its view, padded to a bucket or to the sizes.

    Args:
      problem: what is to be placed.
      num_nodes, num_edges: as of `base.costs`.
      specifications: False withholds those of devices, see `scheduler_tables.view`.
    """
    view = functools.partial(scheduler_tables.view, specifications=specifications)
    return base.costs(problem, view, num_nodes, num_edges)


_BEST_OF_MANY = {
    "algorithm": "reinforce",
    "num_samples": 32,
    "baseline": "risk_seeking",
    "discount": 0.0,
    "entropy_weight": 0.0,
}
RECIPE = base.Recipe(make, {"tuned": base.Variant({}, _BEST_OF_MANY)}, read)
