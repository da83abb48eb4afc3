"""An environment whose action moves a group of operations to a device.

The state is a complete placement. The reward is the decrease of its value in units
(`ProblemArrays.unit_s`), so that rewards add up to the gain over the start. An episode has no end.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement.environments.arrays import ProblemArrays
from placement.types import Array


class State(NamedTuple):
    """A placement, and the best feasible one of the episode."""

    problem: ProblemArrays
    placement: Array  # int32 [N]
    value: Array  # float32 []: in units, see `ProblemArrays.evaluate`
    best_placement: Array  # int32 [N]
    best_value: Array  # float32 []; inf if none was feasible


class Observation(NamedTuple):
    """The input of a policy."""

    placement: Array  # int32 [N]
    value: Array  # float32 []: in units


class Action(NamedTuple):
    """A group of operations and its new device."""

    members: Array  # bool [N]
    device: Array  # int32 []


class Step(NamedTuple):
    """The result of an action."""

    state: State
    observation: Observation
    reward: Array  # float32 []


def reset(key: chex.PRNGKey, problem: ProblemArrays) -> tuple[State, Observation]:
    """Begins with all operations on a device that is drawn of those that can run them."""
    log_prob = jnp.where(jnp.isfinite(problem.single_s), 0.0, -jnp.inf)
    device = jax.random.categorical(key, log_prob)
    placement = problem.single_devices[device]
    value = problem.single_s[device] / problem.unit_s
    state = State(problem, placement, value, placement, value)
    return state, Observation(placement, value)


def step(state: State, action: Action) -> Step:
    """Moves the operations whose device allows it, each with all that are co-located with it.

    Args:
      state: the state.
      action: of co-located operations, the first one decides whether they are members.
    """
    problem = state.problem
    is_moved = action.members[problem.representative]
    is_moved &= problem.graph.nodes["allowed"][:, action.device]
    placement = jnp.where(is_moved, action.device, state.placement)
    value, is_feasible = problem.evaluate(placement)
    is_better = is_feasible & (value < state.best_value)
    next_state = State(
        problem=problem,
        placement=placement,
        value=value,
        best_placement=jnp.where(is_better, placement, state.best_placement),
        best_value=jnp.where(is_better, value, state.best_value),
    )
    return Step(next_state, Observation(placement, value), state.value - value)
