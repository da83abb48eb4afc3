"""The `subgraph` objective of Tarnawski et al. (NeurIPS 2020): latency of one sample.

The host is infinitely wide: its operations start as soon as their inputs are there, and pay no
communication. What lies on an accelerator is one atomic part (their section 5, q = 1):

    start(d)  = max( finish(u) for every u outside that feeds the part,
                     finish of the part before it on the same accelerator )
    finish(d) = start(d) + in-communication + compute + out-communication
    finish(v) = finish(p[v]) on an accelerator, else max over inputs of finish(u) + compute_s[v]
    latency   = max_v finish(v)

with the communication of `max_load`. Several devices with one `CostModel.accelerator` number are
that accelerator's successive parts (q > 1), in the order of their indices.

A placement can run only if the graph whose nodes are the parts and the host's operations has no
cycle. Its longest path is found by passes over the operations in topological order: each takes the
parts' finish as known and finds when their inputs are there. The first pass is right for parts that
wait for no other, every further one for those a part deeper, so D + 1 passes suffice.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement.simulators import max_load, schedule, tensors
from placement.types import Array, CostModel, OpGraph


class Tables(NamedTuple):
    """What `latency` reads."""

    loads: max_load.Tables
    steps: schedule.Steps
    compute_s: Array  # float32 [S, D]: of the step's operation
    is_part: Array  # bool [D]: accelerators' parts, not hosts
    before: Array  # bool [D, D]: [i, d] where part i precedes part d on one accelerator


def tables(graph: OpGraph, costs: CostModel, order: np.ndarray, loads: max_load.Tables) -> Tables:
    """Makes the tables of a problem, on the host.

    Args:
      graph: N operations.
      costs: of these.
      order: int32 [N], topological.
      loads: of the same problem.
    """
    steps = schedule.steps(graph.num_ops, graph.senders, graph.receivers, order)
    accelerator = np.asarray(costs.accelerator)
    same = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    return Tables(
        loads=loads,
        steps=steps,
        compute_s=np.asarray(costs.compute_s, np.float32)[steps.op],
        is_part=accelerator >= 0,
        before=np.triu(same, 1),
    )


def latency(t: Tables, placement: Array) -> Array:
    """Computes seconds of placements int32 [N, B] -> float32 [B]; inf where parts form a cycle."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    load_s = jnp.where(t.is_part[:, None], max_load.loads(t.loads, placement), 0.0)  # [D, B]
    padded = jnp.concatenate([placement, jnp.full((2, placement.shape[1]), -1, placement.dtype)])
    cyclic = _is_cyclic(t, padded)

    def again(state: Any) -> Array:
        finish_s, last_s, _, count = state
        changed = (finish_s != last_s).any(axis=0) & ~cyclic
        return changed.any() & (count <= load_s.shape[0])

    def improve(state: Any) -> Any:
        part_s, _, _, count = state
        ready_s, latency_s = _pass(t, padded, part_s)
        return _in_turn(t, ready_s, load_s), part_s, latency_s, count + 1

    nothing = jnp.zeros(placement.shape[1])
    start = load_s, jnp.full(load_s.shape, -1.0), nothing, 0
    _, part_s, latency_s, _ = jax.lax.while_loop(again, improve, start)
    return jnp.where(cyclic, jnp.inf, jnp.maximum(latency_s, part_s.max(axis=0)))


def _pass(t: Tables, placement: Array, part_s: Array) -> tuple[Array, Array]:
    """One pass: when the parts' inputs are there [D, B], and the host's last finish [B].

    `placement` has two rows more, of device -1; `part_s` [D, B] is when the parts finish.
    """
    num_devices = part_s.shape[0]
    devices = jnp.arange(num_devices)[:, None]

    def step(carry: Any, x: tuple[schedule.Steps, Array]) -> tuple[Any, None]:
        finish, ready, last, arrival = carry
        s, compute_s = x
        device = placement[s.op]
        own = device == devices
        on_part = (own & t.is_part[:, None]).any(axis=0)
        arrival = jnp.where(s.first, 0.0, arrival)
        for slot in range(schedule.WIDTH):
            inside = on_part & (placement[s.inputs[slot]] == device)
            arrival = jnp.maximum(arrival, jnp.where(inside, 0.0, finish[s.inputs[slot]]))
        ready = jnp.maximum(ready, jnp.where(own & s.last, arrival, 0.0))
        host_s = arrival + tensors.pick(compute_s[None], lambda d: device[None] == d)[0]
        end = jnp.where(on_part, jnp.where(own, part_s, 0.0).sum(axis=0), host_s)
        last = jnp.where(s.last & ~on_part, jnp.maximum(last, end), last)
        finish = jax.lax.dynamic_update_index_in_dim(finish, end, s.output, 0)
        return (finish, ready, last, arrival), None

    nothing = jnp.zeros(placement.shape[1])
    start = jnp.zeros(placement.shape), jnp.zeros(part_s.shape), nothing, nothing
    (_, ready, last, _), _ = jax.lax.scan(step, start, (t.steps, t.compute_s))
    return ready, last


def _in_turn(t: Tables, ready_s: Array, load_s: Array) -> Array:
    """When the parts finish [D, B], each after those before it on its accelerator."""
    finish_s: list[Array] = []
    for d in range(load_s.shape[0]):
        start = ready_s[d]
        for i, earlier in enumerate(finish_s):
            start = jnp.where(t.before[i, d], jnp.maximum(start, earlier), start)
        finish_s.append(start + load_s[d])
    return jnp.stack(finish_s)


def _is_cyclic(t: Tables, placement: Array) -> Array:
    """Whether parts wait for each other, bool [B], by who reaches whom as sets of bits."""
    num_devices = t.is_part.shape[0]
    devices = jnp.arange(num_devices)[:, None]

    def step(carry: Any, s: schedule.Steps) -> tuple[Any, None]:
        reached, waits, arrival = carry  # [N + 2, B], [D, B], [B]: bit d where from part d
        device = placement[s.op]
        own = (device == devices) & t.is_part[:, None]
        on_part = own.any(axis=0)
        arrival = jnp.where(s.first, 0, arrival)
        for slot in range(schedule.WIDTH):
            inside = on_part & (placement[s.inputs[slot]] == device)
            arrival |= jnp.where(inside, 0, reached[s.inputs[slot]])
        waits |= jnp.where(own & s.last, arrival, 0)
        mine = jnp.where(on_part, 1 << device, arrival)
        reached = jax.lax.dynamic_update_index_in_dim(reached, mine, s.output, 0)
        return (reached, waits, arrival), None

    batch = placement.shape[1]
    start = (
        jnp.zeros(placement.shape, jnp.int32),
        jnp.zeros((num_devices, batch), jnp.int32),
        jnp.zeros(batch, jnp.int32),
    )
    (_, waits, _), _ = jax.lax.scan(step, start, t.steps)
    # A part also waits for those before it on its accelerator, if there are any operations in it.
    bits = (t.before * (1 << jnp.arange(num_devices))[:, None]).sum(axis=0)
    waits |= bits[:, None]
    for through in range(num_devices):  # the transitive closure (Warshall)
        waits |= jnp.where((waits >> through) & 1 == 1, waits[through], 0)
    return ((waits >> devices) & 1 == 1).any(axis=0)
