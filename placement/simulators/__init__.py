"""Latency of a placement, predicted: one pure, jittable, batched function per objective.

The functions below are batched over placements [B, N]; those of the objectives take them
transposed, [N, B], see `tensors`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.graphs import opgraph
from placement.simulators import makespan, max_load, serial, subgraph
from placement.types import Array, CostModel, Evaluate, OpGraph, Problem


class Objective(NamedTuple):
    """`tables(graph, costs)` runs on the host; `latency(tables, placement [N, B])` is pure."""

    tables: Callable[[OpGraph, CostModel], Any]
    latency: Callable[[Any, Array], Array]


OBJECTIVES: dict[str, Objective] = {
    "serial": Objective(serial.tables, serial.latency),
    "makespan": Objective(makespan.tables, makespan.latency),
    "max_load": Objective(max_load.tables, max_load.latency),
    "subgraph": Objective(subgraph.tables, subgraph.latency),
}


class Limits(NamedTuple):
    """What a placement must respect beside the objective; None where nothing limits it."""

    memory: "Memory | None"
    representative: Array | None  # int32 [N]: the first operation co-located with each


class Memory(NamedTuple):
    """What operations occupy and devices have."""

    memory_bytes: Array  # float32 [N]
    capacity_bytes: Array  # float32 [D]
    shared: Array  # bool [D, D]: devices whose memory is one: parts of an accelerator


class Outcome(NamedTuple):
    """What becomes of B placements."""

    latency_s: Array  # float32 [B]: as if memory were unlimited and co-location free
    overflow: Array  # float32 [B]: largest share by which a device's memory is exceeded, 0 if none
    feasible: Array  # bool [B]: finite, nothing exceeded, co-located operations together

    def penalised_s(self) -> Array:
        """float32 [B]: the latency, longer by the overflow's share: for learning, not for results.

        As in Placeto (Addanki et al. 2019) the penalty grows with the excess, so that a search that
        starts outside the limits finds its way in.
        """
        return self.latency_s * (1 + self.overflow)


def objective(name: str) -> Objective:
    """The objective called `name`; UserError names the valid ones."""
    arguments.check("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def tables(problem: Problem) -> tuple[Limits, Any]:
    """The arrays that `simulate` reads, made on the host: pass them to jit as arguments.

    Raises:
      UserError: more devices than a set of bits holds.
    """
    num_devices = np.asarray(problem.costs.compute_s).shape[1]
    if num_devices > 31:
        raise UserError(f"{num_devices} devices; the simulators take at most 31: give fewer")
    of_objective = objective(problem.objective).tables(problem.graph, problem.costs)
    return jax.tree.map(jnp.asarray, (_limits(problem), of_objective))


def _limits(problem: Problem) -> Limits:
    costs, graph = problem.costs, problem.graph
    accelerator, capacity = np.asarray(costs.accelerator), np.asarray(costs.capacity_bytes)
    one = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    memory = Memory(
        memory_bytes=np.asarray(costs.memory_bytes, np.float32),
        capacity_bytes=capacity.astype(np.float32),
        shared=one | np.eye(len(accelerator), dtype=bool),
    )
    representative = opgraph.representatives(graph)
    return Limits(
        memory=memory if np.isfinite(capacity).any() else None,
        representative=None if graph.num_ops == len(set(representative)) else representative,
    )


def simulate(name: str, tables_: tuple[Limits, Any], placements: Array) -> Outcome:
    """Simulates placements int32 [B, N] under the objective called `name`: pure, jittable."""
    limits, of_objective = tables_
    placement = placements.T
    latency_s = objective(name).latency(of_objective, placement)
    overflow: Array = jnp.zeros_like(latency_s)
    feasible = jnp.isfinite(latency_s)
    if limits.memory is not None:
        overflow = _overflow(limits.memory, placement)
        feasible &= overflow <= 0
    if limits.representative is not None:
        feasible &= (placement == placement[limits.representative]).all(axis=0)
    return Outcome(latency_s, overflow, feasible)


def _overflow(memory: Memory, placement: Array) -> Array:
    used = jnp.stack(
        [
            jnp.where(placement == d, memory.memory_bytes[:, None], 0.0).sum(axis=0)
            for d in range(len(memory.capacity_bytes))
        ]
    )
    together = jnp.where(memory.shared[:, :, None], used[:, None], 0.0).sum(axis=0)
    capacity = memory.capacity_bytes[:, None]
    excess = jnp.maximum(together - capacity, 0.0) / jnp.maximum(capacity, 1.0)
    return jnp.where(jnp.isinf(capacity), 0.0, excess).max(axis=0)


def evaluator(problem: Problem) -> Evaluate:
    """The compiled simulator of a problem: int32 [B, N] -> float32 [B] seconds, inf if infeasible.

    One compilation a batch size; the problem's arrays are arguments of the compiled function, so
    problems whose tables have equal shapes share it: the same graph with other costs does.
    """
    held = tables(problem)
    return lambda placements: _evaluate(problem.objective, held, jnp.asarray(placements, jnp.int32))


@partial(jax.jit, static_argnums=0)
def _evaluate(name: str, tables_: tuple[Limits, Any], placements: Array) -> Array:
    outcome = simulate(name, tables_, placements)
    return jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)
