"""Latency of a placement, predicted: one pure, jittable, batched function per objective."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from placement.simulators import serial
from placement.types import Array, CostModel, Evaluate, OpGraph, Problem


class Objective(NamedTuple):
    """`tables(graph, costs)` runs on the host; `latency(tables, placement [N])` is pure."""

    tables: Callable[[OpGraph, CostModel], Any]
    latency: Callable[[Any, Array], Array]


OBJECTIVES: dict[str, Objective] = {
    "serial": Objective(serial.tables, serial.latency),
}


def objective(name: str) -> Objective:
    """The objective called `name`; ValueError names the valid ones."""
    if name not in OBJECTIVES:
        raise ValueError(f"unknown objective {name!r}; valid objectives: {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def evaluator(problem: Problem) -> Evaluate:
    """The compiled simulator of a problem: int32 [B, N] -> float32 [B] seconds.

    One compilation a batch size; the problem's arrays are arguments of the compiled function, so
    problems of equal sizes share it.
    """
    tables = objective(problem.objective).tables(problem.graph, problem.costs)
    batched = _BATCHED[problem.objective]
    return lambda placements: batched(tables, jnp.asarray(placements, jnp.int32))


_BATCHED = {
    name: jax.jit(jax.vmap(chosen.latency, in_axes=(None, 0)))
    for name, chosen in OBJECTIVES.items()
}
