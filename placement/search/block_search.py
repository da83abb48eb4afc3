"""Block moves, and the iterated local search whose proposals they are, compiled.

A block move puts one block of decisions on one device. Moving single operations fails where
everything runs on one device: each move adds two transfers. Only a whole block that overlaps with
other work can pay for them (large neighbourhoods: Shaw 1998).

A block is an interval of an order of `placement.search.block_orders`: a group of a parse, drawn
uniformly; the beginning of a ball; any interval of another order. Lengths other than those of
groups are log-uniform. Half of the blocks are confined to the decisions on one device. A decision
that the target device does not support does not move, and a block ends where the device's memory is
full.

The search is the configuration of `placement.solvers.iterated_local_search` that `search` runs, on
whole graphs and on windows of them. In each step every chain has `NUM_PROPOSALS` proposals or
fewer, block moves in sets that share an order. This saves a gather for each of them and a
transposition of all. The kind of a set's order is drawn by the recent improvements of each kind.
Placements are columns, see `placement.simulators.tensors`.

Memory over time (`placement.simulators.residency`) takes many times as long as the latency. It is
therefore computed only for proposals that a chain would move to, fastest first, until one fits.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.problem import Problem
from placement.search.block_orders import BALL, GROUP, KINDS, Orders, compute_orders
from placement.solvers import iterated_local_search as ils
from placement.stored_jit import StoredJit
from placement.types import Array

NUM_SETS, SET_SIZE = 2, 32  # of each chain in a step: sets of proposals, and proposals in each
NUM_PROPOSALS = NUM_SETS * SET_SIZE
SEED_STEP = np.uint32(0x85EBCA6B)  # between the seeds of two steps; odd, so that none returns soon


class SearchSpace(NamedTuple):
    """Placements of K decisions on D devices."""

    tables: simulators.Tables
    allowed: Array  # bool [K, D]
    memory_bytes: Array  # float32 [K]
    penalty_s: Array  # float32 []: least penalty of an infeasible placement
    orders: Orders


class SearchState(NamedTuple):
    """State of a search; a pytree of arrays."""

    seed: Array  # uint32 []: of the draws of the next step
    chains: ils.ChainState


def make_space(problem: Problem, seed: int) -> SearchSpace:
    """Makes the search space of a problem; `start` raises its penalty."""
    return SearchSpace(
        tables=problem.tables,
        allowed=problem.decisions.allowed,
        memory_bytes=problem.decisions.memory_bytes.astype(np.float32),
        penalty_s=np.zeros((), np.float32),
        orders=compute_orders(problem, np.random.default_rng(seed)),
    )


def start(
    simulate: Any, space: SearchSpace, placement: Array, seed: Array
) -> tuple[SearchSpace, SearchState]:
    """Starts a chain at a placement and raises the penalty to its latency; pure.

    Args:
      simulate: the objective's `simulators.Objective.simulate_columns`.
      space: the search space.
      placement: int32 [K].
      seed: uint32 [], of all later draws.
    """
    column = placement[:, None]
    outcome = simulate(space.tables, column)
    finite_s = jnp.where(jnp.isfinite(outcome.latency_s), outcome.latency_s, 0.0)
    space = space._replace(penalty_s=jnp.maximum(space.penalty_s, finite_s.max()))
    evaluation = ils.penalise(outcome, space.penalty_s)
    chains = ils.start(column, evaluation, jnp.zeros(1, int))
    return space, SearchState(seed, chains._replace(move_credit=jnp.zeros(len(KINDS))))


@partial(StoredJit, static_argnames=("objective", "set_size"))
def advance(
    space: SearchSpace,
    state: SearchState,
    num_steps: Array,
    *,
    objective: str,
    set_size: int = SET_SIZE,
) -> SearchState:
    """Advances all chains by `num_steps` steps with `NUM_SETS` sets of proposals each."""
    simulate = simulators.get_objective(objective).simulate_columns
    patience = 20 + len(space.allowed) // 64  # steps without improvement before a restart

    def step(_: Array, state: SearchState) -> SearchState:
        chains = state.chains
        free_bytes, memory = None, space.tables.memory
        if memory is not None:
            capacity_bytes = memory.capacity_bytes
            used = simulators.sum_bytes(space.memory_bytes, chains.placements, len(capacity_bytes))
            # The parts of an accelerator share its memory.
            used = jnp.where(memory.shared[:, :, None], used, 0.0).sum(axis=1)
            free_bytes = capacity_bytes[:, None] - used
        proposals = draw_moves(
            state.seed,
            space.orders,
            space.allowed,
            chains.placements,
            free_bytes,
            kind_probabilities(space, chains),
            (NUM_SETS, set_size),
        )
        evaluation = _evaluate(simulate, space, proposals, chains.costs_s)
        chains = ils.move_chains(chains, proposals, evaluation, patience=patience)
        return SearchState(state.seed + SEED_STEP, chains)

    return jax.lax.fori_loop(0, num_steps, step, state)


def draw_moves(
    seed: Array,
    orders: Orders,
    allowed: Array,
    parents: Array,
    free_bytes: Array | None,
    kind_weights: Array,
    shape: tuple[int, int],
) -> ils.Proposals:
    """Draws M neighbours of each of C placements, in Q sets that have an order each.

    Args:
      seed: uint32 [], of these draws.
      orders: of the problem.
      allowed: bool [K, D].
      parents: int32 [K, C], the placements.
      free_bytes: float32 [D, C], memory left under each parent; None where no memory is limited.
      kind_weights: float32 [3], relative frequency of each kind of order.
      shape: Q and M / Q.
    """
    chex.assert_rank([parents, kind_weights, allowed], [2, 1, 2])
    chex.assert_type([parents, kind_weights, allowed], [int, float, bool])
    (num_decisions, num_devices), num_parents = allowed.shape, parents.shape[1]
    uniform = draw_uniform(seed, (6, num_parents, *shape))
    weights = jnp.where(orders.num_orders > 0, kind_weights, 0.0)
    kind_uniform, order_uniform = uniform[:2, :, :, 0]
    threshold = kind_uniform[..., None] * weights.sum()
    kinds = (jnp.cumsum(weights)[:-1] <= threshold).sum(axis=-1)
    # Index of the set's order among those of its kind.
    index = (order_uniform * orders.num_orders[kinds]).astype(jnp.int32)
    order = orders.first_order[kinds] + index

    # The blocks are intervals of ranks, int32 [C, Q, M / Q].
    kind, order_length = kinds[..., None], orders.lengths[order][..., None]
    length_uniform, begin_uniform, device_uniform, source_uniform = uniform[2:]
    length = jnp.exp(length_uniform * jnp.log(order_length + 1.0)).astype(jnp.int32)
    # An interval may reach beyond either end, so that every decision is as likely to be in a block.
    begin = (begin_uniform * (order_length + length - 1)).astype(jnp.int32) + 1 - length
    begin = jnp.where(kind == BALL, 0, begin)
    end = begin + length
    parse = jnp.where(kind == GROUP, index[..., None], 0)
    group = orders.groups[parse, (begin_uniform * orders.num_groups[parse]).astype(jnp.int32)]
    begin = jnp.maximum(jnp.where(kind == GROUP, group[..., 0], begin), 0)
    end = jnp.where(kind == GROUP, group[..., 1], end)
    # Devices are int8, of which a vector register holds four times as many as of int32.
    device = (device_uniform * num_devices).astype(jnp.int8)
    if free_bytes is not None:
        # Blocks end where their device is full, as if none of their decisions were there already.
        # Bisects for the end, because the prefix sums of an order's bytes ascend.
        prefix_bytes = jnp.asarray(orders.prefix_bytes)[order]  # [C, Q, K + 1]
        limit_bytes = free_bytes[device, jnp.arange(num_parents)[:, None, None]]
        begin_bytes = jnp.take_along_axis(prefix_bytes, begin, axis=-1)

        def bisect(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high + 1) // 2
            middle_bytes = jnp.take_along_axis(prefix_bytes, middle, axis=-1)
            fits = middle_bytes - begin_bytes <= limit_bytes
            return jnp.where(fits, middle, low), jnp.where(fits, high, middle - 1)

        # A loop in Python would take ten seconds to compile.
        ends = begin, jnp.clip(end, begin, num_decisions)
        end, _ = jax.lax.fori_loop(0, num_decisions.bit_length(), bisect, ends)

    ranks = orders.ranks[order]
    begin = begin.astype(ranks.dtype)
    end = jnp.minimum(end, num_decisions).astype(ranks.dtype)
    ranks = jnp.moveaxis(ranks, -1, 0)[..., None]
    current = parents[:, :, None, None].astype(jnp.int8)
    # A source below D confines the block to the decisions on that device.
    source = (source_uniform * 2 * num_devices).astype(jnp.int8)
    # Without a barrier XLA would compute these again for every decision.
    ranks, begin, end, device, source = jax.lax.optimization_barrier(
        (ranks, begin, end, device, source)
    )
    supports = [allowed[:, d, None, None, None] & (device == d) for d in range(num_devices)]
    moves = (ranks >= begin) & (ranks < end) & ((source >= num_devices) | (current == source))
    moves &= (current != device) & jnp.any(jnp.stack(supports), axis=0)
    return ils.Proposals(
        jnp.where(moves, device, current).reshape(num_decisions, -1),
        moves.any(axis=0).ravel(),
        jnp.repeat(kinds, shape[1], axis=1),
    )


def draw_uniform(seed: Array, shape: tuple[int, ...]) -> Array:
    """Draws numbers in [0, 1) by a hash of their indices and a seed, uint32 [].

    It compiles in a tenth of the time of `jax.random`, whose quality a search does not need. The
    hash is that of C. Wellons' program hash-prospector, lowbias32.
    """
    bits = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape) * np.uint32(0x9E3779B1)
    bits += seed
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> shift)) * np.uint32(factor)
    return ((bits ^ (bits >> 16)) >> 8).astype(jnp.float32) * 2.0**-24


def kind_probabilities(space: SearchSpace, chains: ils.ChainState) -> Array:
    """Computes how likely a block is drawn from an order of each kind, float32 [3]."""
    assert chains.move_credit is not None
    return ils.kind_probabilities(chains.move_credit, space.orders.num_orders > 0)


def _evaluate(
    simulate: Any, space: SearchSpace, proposals: ils.Proposals, parent_costs_s: Array
) -> ils.Evaluation:
    """Evaluates proposals of C chains that cost `parent_costs_s`, float32 [C].

    If tensors in memory come and go, a proposal that its chain does not move to costs inf: one that
    equals its parent, is slower, or is no faster than another proposal that fits.
    """
    tables, placements = space.tables, proposals.placements
    if tables.memory is None or tables.memory.alive is None:
        return ils.penalise(simulate(tables, placements), space.penalty_s)
    latencies_s = simulate(tables._replace(memory=None), placements).latency_s
    column = jnp.arange(placements.shape[1])
    chain = column // (placements.shape[1] // len(parent_costs_s))
    is_candidate = jnp.isfinite(latencies_s) & (latencies_s <= parent_costs_s[chain])
    assert proposals.differs_from_parent is not None
    is_candidate &= proposals.differs_from_parent

    def check_fastest(carry: Any) -> Any:
        is_candidate, evaluation = carry
        fastest = jnp.where(is_candidate, latencies_s, jnp.inf).argmin()
        outcome = simulate(tables, placements[:, fastest][:, None])
        (cost_s,), (latency_s,) = ils.penalise(outcome, space.penalty_s)
        evaluation = ils.Evaluation(
            jnp.where(column == fastest, cost_s, evaluation.costs_s),
            jnp.where(column == fastest, latency_s, evaluation.latencies_s),
        )
        is_decided = outcome.feasible[0] & (chain == chain[fastest])
        return is_candidate & ~is_decided & (column != fastest), evaluation

    infinite_s = jnp.full(latencies_s.shape, jnp.inf)
    initial = is_candidate, ils.Evaluation(infinite_s, infinite_s)
    return jax.lax.while_loop(lambda carry: carry[0].any(), check_fastest, initial)[1]
