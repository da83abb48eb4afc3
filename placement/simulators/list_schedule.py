"""List schedules: operations run in order of priority, each when its device and inputs are ready.

The module has the parts that every list schedule of the project shares:

- `run_op` is the recursion of every compiled list schedule. Its users differ in who chooses the
  devices: the simulator of `makespan` knows them, `search.schedule_search` knows them for many
  orders, the learned policies and the environment choose them, operation by operation. Arrivals
  come from `accumulate_inputs`, step by step, or from `arrival_from_edges`.
- `Steps` unroll a graph into steps of equal shape, for `lax.scan` over batched schedules.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.graphs import batching, dag
from placement.types import Array

WIDTH = 2  # inputs that a step reads


class Steps(NamedTuple):
    """A graph of N operations and E edges, unrolled into S steps.

    A step reads `WIDTH` inputs of one operation. An operation with more inputs takes several steps
    in a row: with 5 inputs it takes 3. The work is therefore linear in operations and edges, and
    all steps have the same shape, whatever the fan-in.

    Buffers with a row for each operation have two more rows: row N stands for a missing input, and
    all but an operation's last step write to row N + 1, which nobody reads.
    """

    op: Array  # int32 [S]
    inputs: Array  # int32 [S, WIDTH]: the operations that produce the inputs; N for none
    edges: Array  # int32 [S, WIDTH]: the edges of the inputs; E for none
    first: Array  # bool [S]: whether it is the operation's first step
    last: Array  # bool [S]: whether it is the operation's last step
    output: Array  # int32 [S]: the row to write: `op` at the last step, else N + 1


def steps(num_ops: int, senders: np.ndarray, receivers: np.ndarray, order: np.ndarray) -> Steps:
    """Unrolls a graph, on the host.

    Args:
      num_ops: N.
      senders: int32 [E].
      receivers: int32 [E].
      order: int32 [M], in topological order. Operations that it leaves out have no step.
    """
    chex.assert_rank([senders, receivers, order], 1)
    chex.assert_type([senders, receivers, order], int)
    num_edges = len(senders)
    starts, edges = dag.successors(num_ops, receivers, np.arange(num_edges, dtype=np.int32))
    fan_in = np.diff(starts)[order]
    count = num_steps(fan_in)
    op = np.repeat(order, count).astype(np.int32)
    # Of an operation with 3 inputs: steps 0 and 1, slots [[0, 1], [2, 3]], of which 3 is empty.
    step_of_op = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count)
    slot = step_of_op[:, None] * WIDTH + np.arange(WIDTH)
    has_input = slot < np.repeat(fan_in, count)[:, None]
    padded_edges = np.append(edges, np.int32(num_edges))
    edge = padded_edges[np.where(has_input, starts[op][:, None] + slot, num_edges)]
    last = step_of_op == np.repeat(count, count) - 1
    return Steps(
        op=op,
        inputs=np.append(senders, np.int32(num_ops))[edge],
        edges=edge,
        first=step_of_op == 0,
        last=last,
        output=np.where(last, op, np.int32(num_ops + 1)),
    )


def num_steps(fan_in: np.ndarray) -> np.ndarray:
    """Returns the number of steps of operations with `fan_in` inputs."""
    return np.maximum(1, -(-fan_in // WIDTH))


def pad(steps: Steps, num_ops: int, num_edges: int, length: int) -> Steps:
    """Appends steps that change nothing, up to a length; the graph has N operations and E edges."""
    idle_step = num_ops, num_ops, num_edges, True, False, num_ops + 1  # the fields of `Steps`

    def append(values: Array, idle: int) -> np.ndarray:
        missing = length - len(values)
        return np.concatenate([values, np.full((missing, *values.shape[1:]), idle, values.dtype)])

    return Steps(*(append(*pair) for pair in zip(steps, idle_step, strict=True)))


def pad_ops(steps: Steps, sizes: batching.Sizes) -> Steps:
    """Adapts steps to buffers with rows for more operations, and pads them to a length."""
    num_ops, padded_ops = sizes.num_ops, sizes.padded_ops
    moved = steps._replace(
        inputs=np.where(steps.inputs == num_ops, np.int32(padded_ops), steps.inputs),
        output=np.where(steps.output == num_ops + 1, np.int32(padded_ops + 1), steps.output),
    )
    no_edge = int(steps.edges.max(initial=0))  # that of missing inputs, such as those of sources
    return pad(moved, padded_ops, no_edge, sizes.padded_steps)


def fold_steps(
    advance: Callable[[Any, Any], tuple[Any, None]],
    initial: Any,
    arrays: Any,
    num_steps: Array | None,
    *,
    reverse: bool = False,
) -> Any:
    """Applies `advance(carry, xs)` to steps one after another and returns the last carry.

    Args:
      advance: as of `jax.lax.scan`.
      initial: the first carry.
      arrays: a pytree with an entry for each of S steps, which may include padding at the end.
      num_steps: int32 []: the number of steps without padding; None: S.
      reverse: whether the last step comes first.
    """
    if num_steps is None:
        return jax.lax.scan(advance, initial, arrays, reverse=reverse)[0]

    def apply(i: Array, carry: Any) -> Any:
        index = num_steps - 1 - i if reverse else i
        return advance(carry, jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], arrays))[0]

    return jax.lax.fori_loop(0, num_steps, apply, initial)


def accumulate_inputs(
    is_first: Array,
    total: Array,
    initial: Array | float,
    inputs: Sequence[Array],
    combine: Callable[[Array, Array], Array] = jnp.maximum,
) -> Array:
    """Adds the inputs that one step reads to the running total of its operation.

    Args:
      is_first: bool []: whether it is the operation's first step, which begins a new total.
      total: [..., B]: the total after the step before.
      initial: [..., B]: the total of an operation without inputs.
      inputs: `WIDTH` arrays [..., B], such as the arrival of each input.
      combine: by default the maximum, because an operation waits for its last input.
    """
    total = jnp.where(is_first, initial, total)
    for value in inputs:
        total = combine(total, value)
    return total


def arrival_from_edges(
    finish_s: Array, device: Array, senders: Array, delay_s: Array, is_input: Array
) -> Array:
    """Computes when the inputs of one operation arrive at each device, float32 [D].

    Args:
      finish_s: float32 [N], of the operations placed so far.
      device: int32 [N], their devices.
      senders: int32 [E].
      delay_s: float32 [E, D, D].
      is_input: bool [E]: whether an edge leads to the operation.
    """
    delay_s = jnp.asarray(delay_s)[jnp.arange(len(senders)), device[senders]]
    arrival_s = finish_s[senders][:, None] + delay_s
    return jnp.where(is_input[:, None], arrival_s, 0.0).max(axis=0)


def run_op(arrival_s: Array, free_s: Array, compute_s: Array) -> tuple[Array, Array]:
    """Returns an operation's start, when its device is free and its inputs are there, and finish.

    The arguments broadcast. They are those of the operation's device, or those of every device
    where the device is still to be chosen.
    """
    start_s = jnp.maximum(arrival_s, free_s)
    return start_s, start_s + compute_s
