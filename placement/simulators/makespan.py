"""The `makespan` objective: devices work at the same time.

Each device runs its operations one at a time, in a fixed order of priority. An operation starts
when its device is free and its inputs have arrived:

    arrival(v) = max over edges e = (u, v) of finish(u) + delay(e)
    start(v)   = max( arrival(v), finish of the operation before v on device p[v] )
    finish(v)  = start(v) + compute_s[v, p[v]]
    delay(e)   = 0 if p[u] = p[v], else transfer_s[e, p[u], p[v]] + fusion_loss_s[e]
    latency    = max over v of finish(v)

By default the priority is HEFT's upward rank (Topcuoglu et al. 2002): the length of the longest
path to the graph's end at mean costs. It does not depend on the placement, so one order of all
operations serves every placement, and the recursion is one `lax.scan` in this order. A problem may
have another order (`Problem.order`); the tables of all orders have equal shapes. A device never
runs a ready operation before one of higher priority that still waits. Links do not queue: any
number of tensors travel at the same time, each for its delay.

The scan runs B placements at once and has to be fast, because searches spend their time in it:

- The placements are in the last axis, [N, B], so that every step works on contiguous vectors.
- A step looks at two inputs of one operation (`schedule.Steps`). All steps have the same shape.
- A step needs compute_s[v, p[v]] of B placements. A gather would fetch B single elements. D
  selects over whole vectors are faster, because D is small (`tensors.select`).
- The devices are compared as int8, of which a vector register holds four times as many as of int32.
- Devices with equal links, such as equal GPUs, are of one kind. Delays are stored and selected by
  pairs of M kinds rather than by pairs of D devices.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.graphs import batching
from placement.simulators import list_schedule, tensors
from placement.types import Array, OpGraph


class Boundary(NamedTuple):
    """The surroundings of a part of N operations of a schedule, on each device.

    With a boundary, the latency is the longest path of the whole schedule that passes through the
    part: max over v of finish(v) + tail_s[v, p[v]].
    """

    # float32 [S, D]: the earliest start of each step's operation: the device is free of operations
    # before the part, and their outputs have arrived
    ready_s: Array
    tail_s: Array  # float32 [N, D]: the longest path from the finish to the end of the schedule


class Links(NamedTuple):
    """The transfer delays between M kinds of devices; see `Problem.links`."""

    kind: np.ndarray  # int8 [D]: the kind of each device
    delay_s: np.ndarray  # float32 [E, M, M]; on the diagonal: between two devices of the kind


class Tables(NamedTuple):
    """The arrays that the functions below read: S steps, D devices of M kinds."""

    steps: list_schedule.Steps
    compute_s: Array  # float32 [S, D]: of each step's operation
    kind: Array  # int8 [D]: the kind of each device, as in `Links`
    delay_s: Array  # float32 [S, WIDTH, M, M]: of each step's inputs
    boundary: Boundary | None = None  # None if the tables describe a whole schedule
    # int32 []: the number of steps without padding, which comes last; None: S
    num_steps: Array | None = None

    @property
    def step_arrays(self) -> tuple[list_schedule.Steps, Array, Array]:
        """The arrays with an entry for each step, except the boundary."""
        return self.steps, self.compute_s, self.delay_s


class OpSchedule(NamedTuple):
    """The schedule of N operations under one placement. Rows that no step writes are zero."""

    start_s: Array  # float32 [N]
    finish_s: Array  # float32 [N]
    # float32 [N]: the longest path from an operation's finish to the end of the schedule, through
    # the operations that read its output or follow it on a device
    tail_s: Array

    @property
    def latency_s(self) -> Array:
        """float32 []: the finish time of the last operation."""
        return self.finish_s.max()

    @property
    def slack_s(self) -> Array:
        """float32 [N]: how much later an operation may finish; zero on a longest path."""
        return self.latency_s - self.finish_s - self.tail_s


class _Result(NamedTuple):
    """The result of the scan, with the two scratch rows of `schedule.Steps`."""

    finish_s: Array  # float32 [N + 2, B]
    free_s: Array  # float32 [D, B]: when each device has run all its operations
    longest_path_s: Array | None  # float32 [B]: through a part with a boundary; else None
    start_s: Array | None  # float32 [N + 2, B]; None unless requested


def build_tables(graph: OpGraph, compute_s: Array, order: np.ndarray, links: Links) -> Tables:
    """Builds the tables of a problem, on the host.

    Args:
      graph: N operations, E edges.
      compute_s: float [N, D], see `CostModel`.
      order: int32 [N], the order of priority.
      links: the delays of the graph's edges.
    """
    steps = list_schedule.steps(graph.num_ops, graph.senders, graph.receivers, order)
    step_compute_s = np.asarray(compute_s, np.float32)[steps.op]
    delay_s = arrange_delays(steps, links.delay_s)
    return Tables(steps, step_compute_s, links.kind, delay_s)


def arrange_delays(steps: list_schedule.Steps, delay_s: np.ndarray) -> np.ndarray:
    """Arranges the edges' delays [E, M, M] by the inputs of each step, [S, WIDTH, M, M]."""
    no_edge = np.zeros((1, *delay_s.shape[1:]), np.float32)
    return np.concatenate([delay_s, no_edge])[steps.edges]


def pad_tables(tables: Tables, sizes: batching.Sizes) -> Tables:
    """Pads the tables of a whole schedule, on the host, for placements of more operations.

    No latency changes.
    """
    steps = tables.steps
    return tables._replace(
        steps=list_schedule.pad_ops(steps, sizes),
        compute_s=batching.pad(tables.compute_s, sizes.padded_steps, 0.0),
        delay_s=batching.pad(tables.delay_s, sizes.padded_steps, 0.0),
        num_steps=np.array(len(steps.op), np.int32),
    )


def sweep_on_host(tables: Tables, placement: np.ndarray, *, backwards: bool = False) -> np.ndarray:
    """Computes the longest path that ends with each operation of a whole schedule, or begins there.

    It compiles nothing. The paths that end with operations are the simulator's finish times, number
    for number.

    Args:
      tables: on the host, without padding.
      placement: int32 [N].
      backwards: whether the paths begin with the operations.

    Returns:
      float32 [N].
    """
    (steps, compute_s, delay_s), num_steps = tables.step_arrays, np.arange(len(tables.steps.op))
    device, input_device = placement[steps.op], np.append(placement, (0, 0))[steps.inputs]
    kind = np.asarray(tables.kind)
    slots = num_steps[:, None], np.arange(list_schedule.WIDTH)
    delay_s = delay_s[*slots, kind[input_device], kind[device][:, None]]
    delay_s = np.where(input_device == device[:, None], np.float32(0), delay_s)
    # Lists of scalars in single precision: their elements are read faster than those of arrays.
    rows = list(
        zip(
            *(steps.op.tolist(), device.tolist(), steps.last.tolist()),
            *(steps.inputs[:, 0].tolist(), steps.inputs[:, 1].tolist()),
            *(list(delay_s[:, 0]), list(delay_s[:, 1]), list(compute_s[num_steps, device])),
            strict=True,
        )
    )
    zero, num_ops = np.float32(0), len(placement)
    path_s, free_s = [zero] * num_ops, [zero] * compute_s.shape[1]
    if backwards:
        tail_s = path_s.copy()
        for op, d, is_last, first, second, first_delay_s, second_delay_s, seconds in reversed(rows):
            if is_last:  # comes first; the other steps pass the path to more inputs
                path_s[op] = free_s[d] = max(tail_s[op], free_s[d]) + seconds
            if first < num_ops:
                tail_s[first] = max(tail_s[first], path_s[op] + first_delay_s)
            if second < num_ops:
                tail_s[second] = max(tail_s[second], path_s[op] + second_delay_s)
    else:
        arrival_s = zero
        for op, d, is_last, first, second, first_delay_s, second_delay_s, seconds in rows:
            if first < num_ops:
                arrival_s = max(arrival_s, path_s[first] + first_delay_s)
            if second < num_ops:
                arrival_s = max(arrival_s, path_s[second] + second_delay_s)
            if is_last:
                path_s[op] = free_s[d] = max(arrival_s, free_s[d]) + seconds
                arrival_s = zero
    return np.array(path_s, np.float32)


def latency(tables: Tables, placement: Array) -> Array:
    """Computes the latencies float32 [B] of placements int32 [N, B]."""
    result = _scan_schedule(tables, placement)
    return result.free_s.max(axis=0) if result.longest_path_s is None else result.longest_path_s


def finish_s(tables: Tables, placement: Array) -> Array:
    """Computes the operations' finish times float32 [N, B] under placements int32 [N, B]."""
    return _scan_schedule(tables, placement).finish_s[: placement.shape[0]]


def compute_times(tables: Tables, placement: Array) -> tuple[Array, Array]:
    """Computes the operations' start and finish times, float32 [N, B] each, of int32 [N, B].

    If an operation starts as soon as another one finishes, the two times are the same number.
    """
    result, num_ops = _scan_schedule(tables, placement, with_starts=True), placement.shape[0]
    assert result.start_s is not None
    return result.start_s[:num_ops], result.finish_s[:num_ops]


def compute_schedule(tables: Tables, placement: Array) -> OpSchedule:
    """Computes the schedule and the slack of one placement int32 [N].

    The longest path from an operation's finish to the end is the recursion backwards:

        tail(v) = max( compute(w) + tail(w) of the operation w after v on its device,
                       max over edges e = (v, w) of delay(e) + compute(w) + tail(w) )
    """
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    steps, compute_s, delay_s = tables.step_arrays
    num_ops, num_steps = len(placement), len(steps.op)
    start_s, finish_s = compute_times(tables, placement[:, None])
    padded = jnp.concatenate([placement, jnp.zeros(2, placement.dtype)])
    device, input_device = padded[steps.op], padded[steps.inputs]  # [S], [S, WIDTH]
    kind = jnp.asarray(tables.kind)
    delay_s = delay_s[
        jnp.arange(num_steps)[:, None],
        jnp.arange(list_schedule.WIDTH),
        kind[input_device],
        kind[device][:, None],
    ]
    delay_s = jnp.where(input_device == device[:, None], 0.0, delay_s)
    compute_s = compute_s[jnp.arange(num_steps), device]
    devices = jnp.arange(tables.compute_s.shape[1])

    def step_back(carry: Any, xs: Any) -> tuple[Any, None]:
        tail_s, device_tail_s, path_s = carry
        step, device, delay_s, compute_s = xs
        op_tail_s = jnp.maximum(tail_s[step.op], device_tail_s[device])
        tail_s = tail_s.at[step.output].set(op_tail_s)
        # An operation's last step comes first. Its other steps only pass the path to more inputs.
        path_s = jnp.where(step.last, op_tail_s + compute_s, path_s)
        device_tail_s = jnp.where((devices == device) & step.last, path_s, device_tail_s)
        return (tail_s.at[step.inputs].max(path_s + delay_s), device_tail_s, path_s), None

    initial = jnp.zeros(num_ops + 2), jnp.zeros(tables.compute_s.shape[1]), jnp.float32(0)
    xs = steps, device, delay_s, compute_s
    tail_s, *_ = list_schedule.fold_steps(step_back, initial, xs, tables.num_steps, reverse=True)
    return OpSchedule(start_s[:, 0], finish_s[:, 0], tail_s[:num_ops])


def _scan_schedule(tables: Tables, placement: Array, *, with_starts: bool = False) -> _Result:
    """Runs the recursion of the module docstring for placements int32 [N, B]."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    num_devices, num_kinds = tables.compute_s.shape[1], tables.delay_s.shape[-1]
    batch = placement.shape[1]
    # The largest number below is that of a pair of kinds, M * M - 1.
    narrow = jnp.int8 if num_kinds**2 <= 2**7 else jnp.int16
    devices = jnp.concatenate([placement, jnp.zeros((2, batch), placement.dtype)]).astype(narrow)
    kinds = devices
    if num_kinds < num_devices:
        kinds = tensors.select(jnp.asarray(tables.kind, narrow), devices)

    def advance(carry: Any, xs: Any) -> tuple[Any, None]:
        finish_s, free_s, arrival_s, start_s = carry
        (step, compute_s, delay_s), earliest_start_s = xs
        device = devices[step.op]  # [B]
        input_arrivals_s = []
        for slot in range(list_schedule.WIDTH):
            sender = step.inputs[slot]
            pair = kinds[sender] * num_kinds + kinds[step.op]
            input_delay_s = tensors.select(delay_s[slot].ravel(), pair)
            if num_kinds < num_devices:  # two devices of a kind, or twice the same device?
                input_delay_s = jnp.where(devices[sender] == device, 0.0, input_delay_s)
            input_arrivals_s.append(finish_s[sender] + input_delay_s)
        ready_s = 0.0 if earliest_start_s is None else tensors.select(earliest_start_s, device)
        arrival_s = list_schedule.accumulate_inputs(
            step.first, arrival_s, ready_s, input_arrivals_s
        )
        op_start_s, op_finish_s = list_schedule.run_op(
            arrival_s, tensors.select(free_s, device), tensors.select(compute_s, device)
        )
        is_occupied = (device == jnp.arange(num_devices, dtype=narrow)[:, None]) & step.last
        free_s = jnp.where(is_occupied, op_finish_s, free_s)
        # Writing a row with `.at[].set` would be slower.
        write_row = jax.lax.dynamic_update_index_in_dim
        finish_s = write_row(finish_s, op_finish_s, step.output, 0)
        if with_starts:
            start_s = write_row(start_s, op_start_s, step.output, 0)
        return (finish_s, free_s, arrival_s, start_s), None

    # With a boundary, times may be negative: its `ready_s` alone says when an operation can start.
    earliest_s = 0.0 if tables.boundary is None else -jnp.inf
    finish_s = jnp.full(devices.shape, earliest_s)
    free_s = jnp.full((num_devices, batch), earliest_s)
    start_s = jnp.zeros_like(finish_s) if with_starts else None
    initial = finish_s, free_s, jnp.zeros(batch), start_s
    ready_s = None if tables.boundary is None else tables.boundary.ready_s
    finish_s, free_s, _, start_s = list_schedule.fold_steps(
        advance, initial, (tables.step_arrays, ready_s), tables.num_steps
    )
    longest_path_s = None
    if tables.boundary is not None:  # within the steps this would take longer
        tail_s = jnp.asarray(tables.boundary.tail_s).T[..., None]
        longest_path_s = (finish_s[:-2] + tensors.select(tail_s, devices[:-2])).max(axis=0)
    return _Result(finish_s, free_s, longest_path_s, start_s)
