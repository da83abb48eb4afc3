"""The schedule of one placement under each objective, as policies read it.

All objectives get the `OpSchedule` of `placement.simulators.makespan`: start and finish times, and
for each operation its slack, by which it may take longer before the latency increases.

    makespan   the simulator's schedule
    serial     operations one after another, in the order of priority; a tensor that crosses is
               received before its reader starts. No operation has slack.
    max_load   each device's work on one sample: it receives and sends all tensors that cross, then
               computes, in the order of priority. The slack is the difference to the busiest
               device.
    subgraph   as under makespan: the parts of accelerators are not modelled.

Under `serial` and `max_load` a tensor here crosses once for each edge, whereas the simulators let
it cross once for each device that reads it.
"""

from typing import Any

import jax
import jax.numpy as jnp

from placement.policies.inputs import CostView
from placement.simulators import makespan
from placement.simulators.makespan import OpSchedule
from placement.types import Array


def compute_schedule(costs: CostView[Any], placement: Array) -> OpSchedule:
    """Computes the schedule of a placement int32 [N] under the problem's objective.

    All costs must be finite.
    """
    if costs.objective.name not in ("serial", "max_load"):
        return makespan.compute_schedule(costs.simulator, placement)
    steps = costs.steps
    padded = jnp.concatenate([placement, jnp.zeros(2, placement.dtype)])
    device, input_devices = padded[steps.op], padded[steps.inputs]
    # float32 [S]: the time of the operation in its last step, else 0.
    compute_s = jnp.where(steps.last, costs.compute_s[steps.op, device], 0.0)
    # float32 [S, WIDTH]: the delay of each input that crosses. The edge of a missing input is
    # padding and has no delay, as all edges within a device.
    delay_s = jnp.asarray(costs.delay_s)[steps.edges, input_devices, device[:, None]]
    if costs.objective.name == "serial":
        finish_s = jnp.cumsum(compute_s + delay_s.sum(axis=1))
        tail_s = finish_s[-1] - finish_s
    else:
        num_devices = costs.compute_s.shape[1]
        is_device = jax.nn.one_hot(device, num_devices)  # [S, D]
        received_s = delay_s.sum(axis=1) @ is_device
        sent_s = delay_s.reshape(-1) @ jax.nn.one_hot(input_devices.reshape(-1), num_devices)
        transfer_s = jnp.where(costs.is_host, 0.0, received_s + sent_s)  # [D]
        device_s = transfer_s + jnp.cumsum(compute_s[:, None] * is_device, axis=0)  # [S, D]
        finish_s = (device_s * is_device).sum(axis=1)
        tail_s = (device_s[-1] * is_device).sum(axis=1) - finish_s
    buffer = jnp.zeros((len(placement) + 2, 3))  # with the scratch rows of `Steps`
    times_s = jnp.stack([finish_s - compute_s, finish_s, tail_s], axis=1)
    times_s = buffer.at[steps.output].set(times_s)[: len(placement)]
    return OpSchedule(*times_s.T)
