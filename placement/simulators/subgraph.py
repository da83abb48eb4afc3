"""The `subgraph` objective of Tarnawski et al. (NeurIPS 2020): latency of one sample.

The host is infinitely wide: its operations start as soon as their inputs have arrived, and pay for
no communication. The operations on an accelerator are one atomic part (their section 5, q = 1):

    start(d)  = max( finish(u) of every operation u outside the part that feeds it,
                     finish of the part before it on the same accelerator )
    finish(d) = start(d) + in-communication + compute + out-communication
    finish(v) = finish(p[v]) on an accelerator, else max over inputs of finish(u) + compute_s[v]
    latency   = max over v of finish(v)

with the communication of `max_load`. Several devices with the same `CostModel.accelerator` number
are successive parts of that accelerator (q > 1), in the order of their indices.

A placement can run only if the graph of the parts and the host's operations has no cycle. Its
longest path is found by passes over the operations in topological order. A pass takes the parts'
finish times as known and computes when their inputs are ready. The first pass is right for parts
that wait for no other part, the second for those that wait for these, and so on: D + 1 passes
suffice.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.graphs import batching
from placement.simulators import list_schedule, max_load, tensors
from placement.types import Array, CostModel, OpGraph


class Tables(NamedTuple):
    """The arrays that `latency` reads."""

    loads: max_load.Tables
    steps: list_schedule.Steps
    compute_s: Array  # float32 [S, D]: of each step's operation
    is_part: Array  # bool [D]: whether a device is a part of an accelerator, not a host
    precedes: Array  # bool [D, D]: whether part i precedes part d on one accelerator, at [i, d]


def build_tables(
    graph: OpGraph,
    costs: CostModel,
    order: np.ndarray,
    blocks: tuple[tensors.TensorBlock, ...],
) -> Tables:
    """Builds the tables of a problem, on the host.

    Args:
      graph: N operations.
      costs: their costs.
      order: int32 [N], topological.
      blocks: the blocks of the same problem, of `tensors.make_blocks`.
    """
    steps = list_schedule.steps(graph.num_ops, graph.senders, graph.receivers, order)
    accelerator = np.asarray(costs.accelerator)
    shares_accelerator = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    return Tables(
        loads=max_load.build_tables(costs, blocks),
        steps=steps,
        compute_s=np.asarray(costs.compute_s, np.float32)[steps.op],
        is_part=accelerator >= 0,
        precedes=np.triu(shares_accelerator, 1),
    )


def pad_tables(tables: Tables, sizes: batching.Sizes) -> Tables:
    """Pads the tables as `makespan.pad_tables`; sums may be rounded in another way."""
    return tables._replace(
        loads=max_load.pad_tables(tables.loads, sizes),
        steps=list_schedule.pad_ops(tables.steps, sizes),
        compute_s=batching.pad(tables.compute_s, sizes.padded_steps, 0.0),
    )


def latency(tables: Tables, placement: Array) -> Array:
    """Computes the latencies float32 [B] of placements int32 [N, B]; inf if parts form a cycle."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    load_s = jnp.where(
        tables.is_part[:, None], max_load.compute_loads(tables.loads, placement), 0.0
    )  # [D, B]
    cyclic = _is_cyclic(tables, placement)
    is_in_part = tensors.select(jnp.asarray(tables.is_part), placement)  # [N, B]

    def has_changed(state: Any) -> Array:
        finish_s, previous_finish_s, _, num_passes = state
        changed = (finish_s != previous_finish_s).any(axis=0) & ~cyclic
        return changed.any() & (num_passes <= load_s.shape[0])

    def run_pass(state: Any) -> Any:
        part_finish_s, _, _, num_passes = state
        ready_s, op_finish_s = _propagate(
            tables, placement, part_finish_s, jnp.maximum, tables.compute_s
        )
        host_finish_s = jnp.where(is_in_part, 0.0, op_finish_s).max(axis=0)
        finish_s: list[Array] = []  # of the parts, each after those before it on its accelerator
        for d in range(load_s.shape[0]):
            start_s = ready_s[d]
            for i, earlier_s in enumerate(finish_s):
                start_s = jnp.where(tables.precedes[i, d], jnp.maximum(start_s, earlier_s), start_s)
            finish_s.append(start_s + load_s[d])
        return jnp.stack(finish_s), part_finish_s, host_finish_s, num_passes + 1

    initial = load_s, jnp.full(load_s.shape, -1.0), jnp.zeros(load_s.shape[1]), 0
    _, part_finish_s, host_finish_s, _ = jax.lax.while_loop(has_changed, run_pass, initial)
    return jnp.where(cyclic, jnp.inf, jnp.maximum(host_finish_s, part_finish_s.max(axis=0)))


def _is_cyclic(tables: Tables, placement: Array) -> Array:
    """Returns whether parts wait for each other in a cycle, bool [B].

    The parts that lead to an operation are a set of bits: bit d stands for part d.
    """
    num_devices = tables.is_part.shape[0]
    devices = jnp.arange(num_devices)[:, None]
    part_bits = jnp.broadcast_to(1 << devices, (num_devices, placement.shape[1]))
    waits_for, _ = _propagate(tables, placement, part_bits, jnp.bitwise_or, None)
    # A part also waits for the parts before it on its accelerator.
    bits = (tables.precedes * (1 << jnp.arange(num_devices))[:, None]).sum(axis=0)
    waits_for |= bits[:, None]
    for d in range(num_devices):  # the transitive closure (Warshall)
        waits_for |= jnp.where((waits_for >> d) & 1 == 1, waits_for[d], 0)
    return ((waits_for >> devices) & 1 == 1).any(axis=0)


def _propagate(
    tables: Tables,
    placement: Array,
    part_values: Array,
    combine: Callable[[Array, Array], Array],
    compute_s: Array | None,
) -> tuple[Array, Array]:
    """Passes values along all edges, over the operations in topological order.

    Args:
      tables: the tables.
      placement: int32 [N, B].
      part_values: [D, B]: the value of each operation of a part.
      combine: combines the values of the inputs of an operation; 0 is neutral.
      compute_s: float32 [S, D], which the operations of a host add; None: they add nothing.

    Returns:
      The combined inputs of all operations on each device, [D, B], not counting those from its own
      part; and the values of the operations, [N, B].
    """
    num_ops, batch = placement.shape
    devices = jnp.arange(len(part_values))[:, None]
    # With the scratch rows of `list_schedule.Steps`.
    placement = jnp.concatenate([placement, jnp.full((2, batch), -1, placement.dtype)])

    def advance(carry: Any, xs: tuple[list_schedule.Steps, Array | None]) -> tuple[Any, None]:
        values, inputs, op_input = carry
        step, compute_s = xs
        device = placement[step.op]
        is_device = device == devices
        is_in_part = (is_device & tables.is_part[:, None]).any(axis=0)
        step_inputs = [
            jnp.where(is_in_part & (placement[op] == device), 0, values[op])
            for op in (step.inputs[slot] for slot in range(list_schedule.WIDTH))
        ]
        op_input = list_schedule.accumulate_inputs(step.first, op_input, 0, step_inputs, combine)
        inputs = combine(inputs, jnp.where(is_device & step.last, op_input, 0))
        part_value = jnp.where(is_device, part_values, 0).sum(axis=0)
        host_value = op_input
        if compute_s is not None:
            host_value = op_input + tensors.select(compute_s, device)
        op_value = jnp.where(is_in_part, part_value, host_value)
        values = jax.lax.dynamic_update_index_in_dim(values, op_value, step.output, 0)
        return (values, inputs, op_input), None

    dtype = part_values.dtype
    initial = (
        jnp.zeros(placement.shape, dtype),
        jnp.zeros(part_values.shape, dtype),
        jnp.zeros(batch, dtype),
    )
    (values, inputs, _), _ = jax.lax.scan(advance, initial, (tables.steps, compute_s))
    return inputs, values[:num_ops]
