"""When operations run under `makespan`, and how much later they might without harm."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.simulators import makespan, schedule
from placement.types import Array


class Timing(NamedTuple):
    """Of N operations under one placement; a row that no step writes is zero."""

    start_s: Array  # float32 [N]
    finish_s: Array  # float32 [N]
    # float32 [N]: from an operation's end to that of the schedule, along what waits for it: readers
    # and the operations that follow on the devices
    onward_s: Array

    @property
    def latency_s(self) -> Array:
        """When the last operation ends, float32 []."""
        return self.finish_s.max()

    @property
    def slack_s(self) -> Array:
        """How much later an operation may end, float32 [N]: zero on a longest path."""
        return self.latency_s - self.finish_s - self.onward_s


def timing(tables: makespan.Tables, placement: Array) -> Timing:
    """Computes when the operations of a placement int32 [N] run."""
    chex.assert_rank(placement, 1)
    chex.assert_type(placement, int)
    steps, each_s, between_s = tables.by_step
    padded = jnp.concatenate([placement, jnp.zeros(2, placement.dtype)])
    kind = jnp.asarray(tables.kind)[padded]
    # What every step needs of the placement, gathered at once.
    device, there = padded[steps.op], padded[steps.inputs]
    slots = jnp.arange(schedule.WIDTH)
    delay_s = between_s[
        jnp.arange(len(device))[:, None], slots, kind[steps.inputs], kind[steps.op][:, None]
    ]
    delay_s = jnp.where(there == device[:, None], 0.0, delay_s)
    compute_s = each_s[jnp.arange(len(device)), device]
    xs = steps, device, delay_s, compute_s
    num_devices = each_s.shape[1]

    def forward(carry: Any, x: Any) -> tuple[Any, None]:
        start, finish, free, arrival = carry
        s, device, delay_s, compute_s = x
        arrival = jnp.maximum(jnp.where(s.first, 0.0, arrival), (finish[s.inputs] + delay_s).max())
        begin = jnp.maximum(arrival, free[device])
        start = start.at[s.output].set(begin)
        finish = finish.at[s.output].set(begin + compute_s)
        free = free.at[device].set(jnp.where(s.last, begin + compute_s, free[device]))
        return (start, finish, free, arrival), None

    def backward(carry: Any, x: Any) -> tuple[Any, None]:
        onward, behind, own = carry
        s, device, delay_s, compute_s = x
        after = jnp.maximum(onward[s.op], behind[device])
        onward = onward.at[s.output].set(after)
        own = jnp.where(s.last, after + compute_s, own)
        behind = behind.at[device].set(jnp.where(s.last, own, behind[device]))
        return (onward.at[s.inputs].max(own + delay_s), behind, own), None

    zeros, none = jnp.zeros(len(padded)), jnp.zeros(num_devices)
    (start, finish, *_), _ = jax.lax.scan(forward, (zeros, zeros, none, jnp.float32(0)), xs)
    (onward, *_), _ = jax.lax.scan(backward, (zeros, none, jnp.float32(0)), xs, reverse=True)
    size = len(placement)
    return Timing(start[:size], finish[:size], onward[:size])
