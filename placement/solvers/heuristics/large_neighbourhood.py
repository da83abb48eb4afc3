"""`lns`: large-neighbourhood search on the compiled simulator, for any objective.

A proposal moves a block of operations to one device. Moving single operations fails where
everything runs on one device: each move adds two transfers, and only a whole block that overlaps
with other work can pay for them (Shaw 1998). Half of the blocks are segments of the simulator's
order of priority or of a topological order. The others are the beginnings of breadth-first orders
from a seed, along the edges, against them or both ways, across all devices or within the seed's.
Every other seed is an end of a transfer edge, and the block moves to the device of the other end,
so that boundaries move. Lengths are log-uniform.

A round is a step of `placement.solvers.iterated_local_search` with one chain and `BATCH_SIZE`
proposals. The blocks that improve the placement are also joined, best first, and the joins are
evaluated in the next round. A block that is already on its device counts as a proposal, so that a
round without improvement stands still or drifts among equals. A restart moves a few blocks of the
best placement.

Proposals are drawn on the host, unlike those of `search`. The engine's step is the same.
"""

from functools import partial
from math import log
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers import base
from placement.solvers import iterated_local_search as ils
from placement.solvers.heuristics import baechi, list_scheduling
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

BATCH_SIZE = 64  # placements simulated at once: one compilation
_MAX_JOINED = 8  # joins of a round's blocks, which are proposals of the next round
_PATIENCE, _CLASSES_PER_ROUND = 10, 16  # rounds without improvement before a restart
_MAX_KICKS = 4  # blocks that a restart moves
STARTS: tuple[base.Find, ...] = (
    list_scheduling.heft,
    list_scheduling.peft,
    baechi.m_topo,
    baechi.m_etf,
    baechi.m_sct,
)


class _SearchSpace(NamedTuple):
    """C classes of co-located operations, and what blocks of them are drawn from."""

    class_ids: np.ndarray  # int32 [N]
    allowed: np.ndarray  # bool [C, D]
    orders: np.ndarray  # int [K, C]: linear orders of all classes
    senders: np.ndarray  # int32 [Q]: distinct edges between classes
    receivers: np.ndarray  # int32 [Q]


class _Blocks(NamedTuple):
    """M blocks and their target devices."""

    is_member: np.ndarray  # bool [M, C]
    device: np.ndarray  # int [M]


def lns(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Searches large neighbourhoods of the best single device or list schedule."""
    base.report_single_device(problem, limits)
    schedules = [find(problem, seed, limits).placement for find in STARTS]
    placements = [placement for placement in schedules if placement is not None]
    starts = np.array([*problem.single_devices, *placements], np.int32)
    starts_s = problem.evaluate(pad_batch(starts))
    return polish(problem, starts[int(np.argmin(starts_s))], seed, limits)


def polish(problem: Instance, placement: np.ndarray, seed: int, limits: SearchLimits) -> Solution:
    """Improves a placement int [N] until time or `limits.budget` is spent; never worsens it."""
    chex.assert_shape(placement, (problem.graph.num_ops,))
    chex.assert_type(placement, int)
    rng, classes = np.random.default_rng(seed), problem.classes
    time_orders = [problem.priority_order, problem.topological_order]
    class_orders = [list(dict.fromkeys(classes.ids[order].tolist())) for order in time_orders]
    space = _SearchSpace(
        classes.ids,
        classes.allowed,
        np.array(class_orders),
        *dag.quotient(problem.graph.senders, problem.graph.receivers, classes.ids),
    )
    current = np.asarray(placement, np.int32)[classes.first_ops]
    current_s = np.asarray(problem.evaluate(pad_batch(current[None])[:, classes.ids]))[:1]
    chain = ils.start(current[:, None], ils.Evaluation(current_s, current_s), np.zeros(1, int))
    joined = np.empty((0, len(current)), np.int32)
    patience = _PATIENCE + len(current) // _CLASSES_PER_ROUND
    evaluations = 1
    best, best_s = current, float(current_s[0])
    limits.report(evaluations, best_s, best[classes.ids])
    while not limits.is_over() and evaluations + BATCH_SIZE <= limits.budget:
        blocks = _draw_blocks(rng, space, current, BATCH_SIZE - len(joined))
        rows = np.concatenate([joined, _move_blocks(space, current, blocks)])
        rows_s = np.asarray(problem.evaluate(rows[:, classes.ids]))
        evaluations += len(rows)
        # The best two of the blocks that improve the placement together, the best three, and so on.
        block_costs_s = rows_s[len(joined) :]
        num_better = np.count_nonzero(block_costs_s < np.asarray(chain.costs_s))
        better = np.argsort(block_costs_s, kind="stable")[: min(num_better, _MAX_JOINED + 1)]
        joined_rows, row = [], current
        for i in better.tolist():
            block = _Blocks(blocks.is_member[[i]], blocks.device[[i]])
            row = _move_blocks(space, row, block)[0]
            joined_rows.append(row)
        joined = np.array(joined_rows[1:], np.int32).reshape(-1, len(current))
        chain = _move_chain(chain, ils.Proposals(rows.T), ils.Evaluation(rows_s, rows_s))
        current = np.asarray(chain.placements)[:, 0]
        best, best_s = np.asarray(chain.best_placement), float(chain.best_latency_s)
        limits.report(evaluations, best_s, best[classes.ids])
        if chain.steps_since_improvement[0] > patience:
            current, joined = best, joined[:0]
            for _ in range(rng.integers(1, _MAX_KICKS + 1)):
                current = _move_blocks(space, current, _draw_blocks(rng, space, current, 1))[0]
            chain = chain._replace(
                placements=jnp.asarray(current[:, None]),
                costs_s=jnp.full(1, jnp.inf, jnp.float32),
                steps_since_improvement=jnp.zeros(1, jnp.int32),
            )
    status = Status.TIME_LIMIT if limits.is_over() else Status.FINISHED
    return Solution(best[classes.ids], status=status, evaluations=evaluations)


# The host restarts the chain, because blocks are drawn there.
_move_chain = jax.jit(partial(ils.move_chains, patience=None))


def pad_batch(rows: np.ndarray) -> np.ndarray:
    """Returns `BATCH_SIZE` rows, the last one repeated."""
    return np.concatenate([rows, np.repeat(rows[-1:], BATCH_SIZE - len(rows), axis=0)])


def _draw_blocks(
    rng: np.random.Generator, space: _SearchSpace, placement: np.ndarray, count: int
) -> _Blocks:
    """Draws blocks of a placement int [C], half of them balls and half of them segments."""
    size = len(placement)
    is_member = np.zeros((count, size), bool)
    device = rng.integers(0, space.allowed.shape[1], count)
    length = np.exp(rng.uniform(0, log(size + 1), count)).astype(int)
    is_transfer = placement[space.senders] != placement[space.receivers]
    transfers = np.flatnonzero(is_transfer)
    # Matrices to search breadth first, and whether along their direction alone.
    searches: list[tuple[sparse.csr_array, bool]] = []
    for is_edge in (np.ones_like(is_transfer), ~is_transfer):
        edges = space.senders[is_edge], space.receivers[is_edge]
        matrix = sparse.csr_array((np.ones(len(edges[0])), edges), (size, size))
        searches += [(matrix, False), (matrix, True), (matrix.T.tocsr(), True)]
    for i in range(count):
        if i % 2:
            order = space.orders[rng.integers(len(space.orders))]
            begin = rng.integers(1 - length[i], len(order))
            block = order[max(begin, 0) : begin + length[i]]
            if rng.random() < 0.5:
                block = block[placement[block] == placement[block[0]]]
        else:
            seed = rng.integers(size)
            if len(transfers) and rng.random() < 0.5:
                edge = rng.choice(transfers)
                ends = rng.permutation([space.senders[edge], space.receivers[edge]])
                seed, device[i] = ends[0], placement[ends[1]]
            matrix, directed = searches[rng.integers(len(searches))]
            block = csgraph.breadth_first_order(
                matrix, seed, directed=directed, return_predecessors=False
            )[: length[i]]
        is_member[i, block] = True
    return _Blocks(is_member, device)


def _move_blocks(space: _SearchSpace, placement: np.ndarray, blocks: _Blocks) -> np.ndarray:
    """Returns int32 [M, C]: a placement with each block on its device, where that supports it."""
    is_allowed = space.allowed.T[blocks.device]
    is_moved = blocks.is_member & is_allowed
    return np.where(is_moved, blocks.device[:, None], placement).astype(np.int32)
