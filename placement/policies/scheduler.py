"""A learned list scheduler, for graphs and devices that it has not seen before.

An episode places all operations T times. Each time, the operations are taken in the simulator's
order of priority. Operation v goes to device d with a probability that is the softmax over d of

    logit(v, d) = - ( x_0(v, d) + sum_i w_i x_i(v, d) ) / tau + MLP[ x'(v, d), e_v, c_d, z ]

    w   = w' + w'' * z_1..7,   log tau = a + b * z_0,   z ~ N(0, I), drawn for each sample
    e_v = GCN of the operation's costs and its position in the graph
    c_d = MLP of the device's properties: its speed by class of operation, its memory, its links
    x'  = x / (1 + x)

x_i(v, d) describes v on d in the partial schedule, see `_list_schedule`: relative to the least over
d, and in units of the graph's median operation. With x_0 alone, the earliest finish, it is HEFT's
rule (Topcuoglu et al. 2002). Three of them look at the placement of the step before, so that a step
improves it: a list scheduler puts an operation near its inputs, not near its readers.

The numbers z are the *style* of a placement: how far it looks ahead, how greedy it is. Styles
differ between samples, so that the best of many samples is much better than their mean. They are
part of the sample's `latent`; its log-probability is that of the placement given the style.
Learned are w', a and the MLP, which starts at zero. No parameter depends on the number of devices,
and operations have no names or types, so that a trained policy places other graphs.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement.policies import base, encoders, inputs
from placement.policies.inputs import CostFeatures, CostView
from placement.problem import Problem
from placement.simulators import list_schedule, tensors
from placement.types import Array, LogProb, Params, Policy, Sample

NUM_FEATURES = 8
# The means w' and spreads w'' of the weights of x_1 to x_7, and a and b of log tau.
_WEIGHTS = (0.4, 0.6, 0.5, 0.0, 0.4, 0.2, 0.6)
# The spreads are set by hand. Training would narrow them to what suits the training families, and
# other families would lose the variety that the best of many samples needs.
_SPREADS = (0.4, 1.0, 0.6, 0.3, 0.5, 0.4, 0.8)
_LOG_TAU, _LOG_TAU_SPREAD, _MIN_LOG_TAU = -2.0, 1.5, -7.0


class Latent(NamedTuple):
    """B episodes as `log_prob` reads them, so that it need not repeat their schedules."""

    z: Array  # float32 [B, T, NUM_FEATURES]: the styles
    features: Array  # float32 [B, T, N, NUM_FEATURES, D]: x of each operation
    candidate: Array  # bool [B, T, N, D]


class _Style(NamedTuple):
    """The styles of B placements."""

    weights: Array  # float32 [F, B]: the first is 1
    tau: Array  # float32 [B]
    hidden: Array  # float32 [H, B]


class _Network(nn.Module):
    """The parts of a logit; `hidden_size` is H.

    The B samples are the last axis of all arrays that a step computes, so that they fill the
    processor's vectors: B is large, the numbers of features, devices and hidden units are small.
    The names of submodules and parameters are those of the installed parameters.
    """

    hidden_size: int

    def setup(self) -> None:
        self.embed = encoders.MLP((self.hidden_size, self.hidden_size))
        self.gcn = encoders.GCN(self.hidden_size)
        self.op_layer = encoders.Dense(self.hidden_size, name="of_node")
        self.device_layer = encoders.Dense(self.hidden_size, use_bias=False, name="of_device")
        self.style_layer = encoders.Dense(self.hidden_size, use_bias=False, name="of_style")
        shape = self.hidden_size, NUM_FEATURES
        self.feature_kernel = self.param("of_features", encoders.lecun_normal(in_axis=1), shape)
        self.out = self.param("out", nn.initializers.zeros, self.hidden_size)
        self.weights = self.param("weights", lambda _: jnp.array(_WEIGHTS))
        self.log_tau = self.param("log_tau", lambda _: jnp.float32(_LOG_TAU))

    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Calls every part, for `init`."""
        x = jnp.zeros((NUM_FEATURES, graph.globals.policy_tables.device.shape[0], 1))
        style = self.style(jnp.zeros((1, NUM_FEATURES)))
        return self.logits(x, self.encode(graph)[0], style)

    def encode(self, graph: jraph.GraphsTuple) -> Array:
        """Computes the hidden units of e_v and c_d, [N, D, H]; they depend on no placement."""
        t: CostFeatures = graph.globals.policy_tables
        embedded = self.gcn(graph, self.embed(t.op))
        return self.op_layer(embedded)[:, None] + self.device_layer(jnp.asarray(t.device))

    def style(self, z: Array) -> _Style:
        """Computes the styles of z [B, NUM_FEATURES]."""
        weights = self.weights + jnp.array(_SPREADS) * z[:, 1:]
        log_tau = self.log_tau + _LOG_TAU_SPREAD * z[:, 0]
        return _Style(
            weights=jnp.concatenate([jnp.ones_like(z[:, :1]), weights], axis=1).T,
            tau=jnp.exp(jnp.maximum(log_tau, _MIN_LOG_TAU)),
            hidden=self.style_layer(z).T,
        )

    def logits(self, x: Array, encoded: Array, style: _Style) -> Array:
        """Computes logits [..., D, B] of features x [..., F, D, B] and encodings [..., D, H]."""
        linear = (x * style.weights[:, None]).sum(axis=-3) / style.tau
        # x / (1 + x) instead of a logarithm, and a sum instead of a matrix product: an episode
        # takes half the time.
        hidden = jnp.einsum("hf,...fdb->...hdb", self.feature_kernel, x / (1.0 + x))
        hidden += jnp.swapaxes(encoded, -1, -2)[..., None] + style.hidden[:, None]
        return (self.out[:, None, None] * jax.nn.relu(hidden)).sum(axis=-3) - linear


# `visit(carry, op [], output [], x [F, D, B], candidate bool [D, B]) -> (device int32 [B], carry)`
# chooses the devices of an operation. It is called for each step of the operation, see
# `schedule.Steps`; only the last step counts. There `output` is `op`, before that the scratch row
# N + 1.
_Visit = Callable[[Any, Array, Array, Array, Array], tuple[Array, Any]]


def make(*, num_devices: int, hidden_size: int = 16, episode_steps: int = 3) -> Policy:
    """Makes the policy; the globals of its graphs are a `inputs.cost_feature_view`.

    Args:
      num_devices: D, which the graph also has; the parameters do not depend on it.
      hidden_size: H, of the embeddings and the MLP.
      episode_steps: T, how often an episode places all operations.
    """
    del num_devices
    network = _Network(hidden_size)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        return network.init(key, _to_jax(graph))

    def sample(
        params: Params,
        key: chex.PRNGKey,
        graph: jraph.GraphsTuple,
        num_samples: int,
        placements: Array | None = None,
    ) -> Sample:
        graph = _to_jax(graph)
        encoded = network.apply(params, graph, method="encode")
        write_row = jax.lax.dynamic_update_index_in_dim
        decides = jnp.append(graph.nodes["mask"], jnp.zeros(2, bool))  # with scratch rows

        num_steps = episode_steps if placements is None else 1
        z_key, key = jax.random.split(key)
        # Vectors are drawn, because draws of several axes compile for longer.
        shape = num_steps, num_samples, NUM_FEATURES
        styles = jax.random.normal(z_key, (math.prod(shape),)).reshape(shape)
        # The numbers of the first operations do not depend on the padding.
        shape = len(decides), num_steps, num_samples
        uniforms = jax.random.uniform(key, (math.prod(shape),)).reshape(shape)  # [N + 2, T, B]

        def step(previous: Any, inputs: tuple[Array, Array]) -> tuple[Any, Sample]:
            z, uniform = inputs
            style = network.apply(params, z, method="style")

            def visit(
                carry: Any, op: Array, output: Array, x: Array, candidate: Array
            ) -> tuple[Array, Any]:
                totals, features, candidates = carry
                logits = network.apply(params, x, encoded[op], style, method="logits")
                log_probs = _log_softmax(cast(Array, logits), candidate, axis=0)  # [D, B]
                # The device is where the cumulated probabilities exceed the uniform number. The
                # factor keeps rounding from choosing a device beyond the last candidate.
                cumulated = jnp.cumsum(jnp.exp(log_probs), axis=0)
                threshold = uniform[op] * cumulated[-1] * (1 - 1e-6)
                device = (cumulated <= threshold).sum(axis=0, dtype=jnp.int32)
                log_prob = jnp.take_along_axis(log_probs, device[None], axis=0)[0]
                terms = jnp.stack([log_prob, _entropy(log_probs, axis=0)])
                terms = jnp.where(decides[output], terms, 0.0)
                features = write_row(features, x, output, 0)
                candidates = write_row(candidates, candidate, output, 0)
                return device, (totals + terms, features, candidates)

            shape = len(decides), graph.globals.compute_s.shape[1], num_samples
            features = jnp.zeros((len(decides), NUM_FEATURES, *shape[1:]))
            carry = jnp.zeros((2, num_samples)), features, jnp.ones(shape, bool)
            placement, (totals, *rows) = _list_schedule(
                graph, jnp.asarray(previous).T, num_samples, visit, carry
            )
            rows = (jnp.moveaxis(x[: len(placement)], -1, 0) for x in rows)
            result = Sample(placement.T, totals[0], totals[1], Latent(z, *rows))
            return placement.T, jax.tree.map(lambda x: x[:, None], result)

        # -1 stands for no placement: the first step shares its compilation with the others.
        start = jnp.full((num_samples, len(graph.nodes["mask"])), -1, jnp.int32)
        start = start if placements is None else jnp.asarray(placements, jnp.int32)
        _, steps = jax.lax.scan(step, start, (styles, jnp.swapaxes(uniforms, 0, 1)))
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf[:, :, 0], 0, 1), steps)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        """Scores all steps of all episodes at once, side by side: their placements are known."""
        graph = _to_jax(graph)
        batch, steps, num_nodes = samples.placement.shape
        placement = jnp.asarray(samples.placement).reshape(batch * steps, num_nodes)  # [B T, N]
        rows = jax.tree.map(lambda x: x.reshape(batch * steps, *x.shape[2:]), samples.latent)
        # [N, F, D, B T] and [N, D, B T]; they do not depend on the parameters.
        x, candidate = (jnp.moveaxis(x, 0, -1) for x in (rows.features, rows.candidate))
        encoded = network.apply(params, graph, method="encode")
        style = network.apply(params, rows.z, method="style")
        logits = cast(Array, network.apply(params, x, encoded, style, method="logits"))
        log_probs = _log_softmax(logits, candidate, axis=1)
        device = placement.T[:, None]
        device_log_prob = jnp.take_along_axis(log_probs, device, axis=1)[:, 0]
        # Every co-located operation draws a device; the evaluation has all on the first one's.
        decides = jnp.asarray(graph.nodes["mask"])[:, None]
        log_prob, entropy = (
            jnp.where(decides, terms, 0.0).sum(axis=0).reshape(batch, steps)
            for terms in (device_log_prob, _entropy(log_probs, axis=1))
        )
        choices = jnp.full((batch, steps), decides.sum().astype(jnp.float32))
        return LogProb(log_prob, entropy, choices)

    return Policy(init, sample, log_prob)


class _PartialSchedule(NamedTuple):
    """A partial schedule of B placements, in units; the last two rows of N + 2 are scratch."""

    device: Array  # int32 [N + 2, B]
    finish: Array  # float32 [N + 2, B]
    free: Array  # float32 [D, B]: when the device has run all its operations
    used_memory: Array  # float32 [D, B]
    arrival: Array  # float32 [D, B]: when the inputs of the current operation have arrived
    transfer: Array  # float32 [D, B]: the sum of their delays


def _list_schedule(
    graph: jraph.GraphsTuple,
    previous: Array,
    batch: int,
    visit: _Visit,
    carry: Any,
) -> tuple[Array, Any]:
    """Places all operations in the order of priority, B times side by side.

    The features of v on d are
        x_0  the earliest finish of v on d
        x_1  the least time from there to the end, PEFT's optimistic cost (Arabnejad, Barbosa 2014)
        x_2  the sum of the delays of v's inputs to d
        x_3  the time that v computes on d
        x_4  the time that d would be idle, waiting for the inputs
        x_5  the longest delay from d to v's readers, where the placement before had them
        x_6  the sum of these delays
        x_7  1 if the placement before had v on another device
    The last three are zero without a placement before.

    Args:
      graph: with a `inputs.cost_feature_view`.
      previous: int32 [N, B], the previous placement; -1: none.
      batch: B.
      visit: see `_Visit`.
      carry: the first argument of the first `visit`.

    Returns:
      The placements int32 [N, B], and the carry of the last `visit`.
    """
    costs: CostView[CostFeatures] = graph.globals
    t, (num_nodes, num_devices) = costs.policy_tables, costs.compute_s.shape
    allowed = jnp.asarray(graph.nodes["allowed"])
    # The simulator's tables in units; unsupported operations take no time.
    simulator = costs.simulator
    compute_s = jnp.where(jnp.isfinite(simulator.compute_s), simulator.compute_s, 0.0)
    simulator = simulator._replace(
        compute_s=compute_s / t.unit_s, delay_s=simulator.delay_s / t.unit_s
    )
    devices = jnp.arange(num_devices)[:, None]
    # x_5 to x_7, [N, D, B] each.
    delay = costs.delay_s / t.unit_s  # [E, D, D]
    previous_rows = jnp.concatenate([previous, jnp.zeros((1, batch), previous.dtype)])
    reader_device = previous_rows[costs.receivers][:, None]  # [E, 1, B]
    edge_delay = tensors.select([delay[:, :, d, None] for d in range(num_devices)], reader_device)
    total = jraph.segment_sum(edge_delay, costs.senders, num_nodes + 1)[:num_nodes]
    longest = jraph.segment_max(edge_delay, costs.senders, num_nodes + 1)[:num_nodes]
    longest = jnp.maximum(longest, 0.0)  # -inf without readers
    moved = (previous[:, None] != devices).astype(jnp.float32)
    previous_features = [jnp.where(previous[0] < 0, 0.0, x) for x in (longest, total, moved)]
    write_row = jax.lax.dynamic_update_index_in_dim

    def step(i: Array, state: tuple[_PartialSchedule, Any]) -> tuple[_PartialSchedule, Any]:
        partial, carry = state
        s, compute, delays = jax.tree.map(lambda leaf: leaf[i], simulator.step_arrays)
        input_delays, arrivals = [], []
        for sender, delay in zip(s.inputs, delays, strict=True):  # over the step's input slots
            input_delays.append(tensors.select(delay[:, :, None], partial.device[sender]))  # [D, B]
            arrivals.append(partial.finish[sender] + input_delays[-1])
        arrival = list_schedule.accumulate_inputs(s.first, partial.arrival, 0.0, arrivals)
        transfer = list_schedule.accumulate_inputs(
            s.first, partial.transfer, 0.0, input_delays, jnp.add
        )
        _, end = list_schedule.run_op(arrival, partial.free, compute[:, None])
        # A device without memory for v is not a candidate, unless no device has memory for it.
        fits = partial.used_memory + t.memory[s.op] <= t.capacity[:, None]
        candidate = allowed[s.op][:, None] & (fits | ~fits.any(axis=0))
        columns = (
            end,
            t.optimistic_cost[s.op][:, None],
            transfer,
            compute[:, None],
            jnp.maximum(arrival - partial.free, 0.0),
            *(feature[s.op] for feature in previous_features),
        )
        x = jnp.stack([jnp.broadcast_to(column, end.shape) for column in columns])  # [F, D, B]
        minimum = jnp.where(candidate, x, jnp.inf).min(axis=1, keepdims=True)
        x = jnp.where(candidate, x - minimum, 0.0)
        device, carry = visit(carry, s.op, s.output, x, candidate)
        is_placed = (device == devices) & s.last  # [D, B]
        finish = jnp.where(is_placed, end, 0.0).sum(axis=0)
        return _PartialSchedule(
            device=write_row(partial.device, device, s.output, 0),
            finish=write_row(partial.finish, finish, s.output, 0),
            free=jnp.where(is_placed, end, partial.free),
            used_memory=partial.used_memory + jnp.where(is_placed, t.memory[s.op], 0.0),
            arrival=arrival,
            transfer=transfer,
        ), carry

    zeros, rows = jnp.zeros((num_devices, batch)), (num_nodes + 2, batch)
    start = _PartialSchedule(jnp.zeros(rows, jnp.int32), jnp.zeros(rows), *4 * (zeros,))
    result, carry = jax.lax.fori_loop(0, costs.num_steps, step, (start, carry))
    return result.device[:num_nodes], carry


def _log_softmax(logits: Array, candidate: Array, *, axis: int) -> Array:
    """Normalises logits over the candidates; the other devices get a probability of zero."""
    return jax.nn.log_softmax(jnp.where(candidate, logits, -1e9), axis=axis)


def _entropy(log_probs: Array, *, axis: int) -> Array:
    return -(jnp.exp(log_probs) * log_probs).sum(axis=axis)


def _to_jax(graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
    return jax.tree.map(jnp.asarray, graph)


def read(
    problem: Problem, num_nodes: int | None = None, num_edges: int | None = None
) -> inputs.PolicyInput:
    """Reads a node for every operation, without features; sizes as of `inputs.read`."""
    return inputs.read(problem, inputs.cost_feature_view, num_nodes, num_edges)


_BEST_OF_MANY = {
    "algorithm": "reinforce",
    "num_samples": 32,
    "baseline": "risk_seeking",
    "discount": 0.0,
    "entropy_weight": 0.0,
}
RECIPE = base.Recipe(make, {"default": base.Variant({}, _BEST_OF_MANY)}, read, zero_shot=True)
