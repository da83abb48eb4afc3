"""Large-neighbourhood search on the compiled simulator, for any objective.

A step frees a block of operations and gives all of it to one device. Single operations do not do:
where everything runs on one device, moving one costs two transfers, and only a whole block that
overlaps with the rest pays for them. A block is a segment of a linear order of the operations:

- the simulator's priority order, or a topological order: a segment of time;
- breadth-first orders from a seed, along the edges, against them or both ways, taken from the
  front: a ball, the seed's descendants or its ancestors, nearest first; within the operations of
  the seed's device or regardless of it. Every other seed is an end of a transfer edge, whose other
  end's device takes the block, so that boundaries move.

Lengths are log-uniform. A round draws `BATCH` blocks and simulates them at once; those that improve
are also joined, best first, and simulated with the next round. The search goes on from the best
of a round unless it is worse than where it stands; a block that is on its device already counts,
so that a round without gain stands still or drifts among equals. After several of them, the more
the larger the graph, a few blocks of the best known placement are moved whatever that costs, and
the search starts there (iterated local search; Lourenço, Martin and Stützle 2003). Large
neighbourhoods: Shaw 1998.
"""

from math import log
from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.heuristics import baechi, list_scheduling
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

BATCH = 64  # placements simulated at once: one compilation
_JOINED = 8  # of them joins of the last round's
_PATIENCE, _PER_ROUND = 10, 16  # rounds without gain: so many, and one for so many classes
_KICKS = 4
STARTS: tuple[base.Find, ...] = (
    list_scheduling.heft,
    list_scheduling.peft,
    baechi.m_topo,
    baechi.m_etf,
    baechi.m_sct,
)


class _Space(NamedTuple):
    """What blocks are drawn from; C classes of co-located operations are what is moved."""

    number: np.ndarray  # int32 [N]: the class of every operation
    allowed: np.ndarray  # bool [C, D]
    orders: np.ndarray  # int [K, C]: linear orders of all classes
    senders: np.ndarray  # int32 [Q]: distinct edges between classes
    receivers: np.ndarray  # int32 [Q]


class _Blocks(NamedTuple):
    """M blocks and where they would go."""

    members: np.ndarray  # bool [M, C]
    device: np.ndarray  # int [M]


def lns(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Large neighbourhoods (Shaw 1998), from the best of single devices and list schedules."""
    candidates = starts(problem, seed, limits)
    values = problem.evaluate(_padded(candidates))
    return polish(problem, candidates[int(np.argmin(values))], seed, limits)


def starts(problem: Instance, seed: int, limits: SearchLimits) -> np.ndarray:
    """Returns int32 [M, N]: single devices, as far as they can, and list schedules."""
    schedules = [find(problem, seed, limits).placement for find in STARTS]
    placements = [placement for placement in schedules if placement is not None]
    return np.array([*problem.single_devices, *placements], np.int32)


def polish(problem: Instance, placement: np.ndarray, seed: int, limits: SearchLimits) -> Solution:
    """Improves a placement int [N] until time or `limits.budget` is spent; never worsens it."""
    chex.assert_shape(placement, (problem.graph.num_ops,))
    chex.assert_type(placement, int)
    rng, space = np.random.default_rng(seed), _space(problem)
    at = best = np.asarray(placement)[problem.classes.first_ops]
    at_s = best_s = float(problem.evaluate(_padded(at[None])[:, space.number])[0])
    joined = np.empty((0, len(at)), np.int32)
    stale, evaluations = 0, 1
    limits.tell(evaluations, best_s, best[space.number])
    while not limits.over() and evaluations + BATCH <= limits.budget:
        blocks = _draw(rng, space, at, BATCH - len(joined))
        rows = np.concatenate([joined, _moved(space, at, blocks)])
        values = np.asarray(problem.evaluate(rows[:, space.number]))
        evaluations += len(rows)
        drawn = values[len(joined) :]
        better = np.argsort(drawn, kind="stable")[: np.count_nonzero(drawn < at_s)]
        joined = _joined(space, at, blocks, better[: _JOINED + 1])
        stale += 1
        chosen = int(values.argmin())
        if values[chosen] <= at_s:
            stale = 0 if values[chosen] < at_s else stale
            at, at_s = rows[chosen], float(values[chosen])
        if at_s < best_s:
            best, best_s = at, at_s
        limits.tell(evaluations, best_s, best[space.number])
        if stale > _PATIENCE + len(at) // _PER_ROUND:
            at, at_s, stale = _kicked(rng, space, best), np.inf, 0
            joined = joined[:0]
    status = Status.TIME_LIMIT if limits.over() else Status.FINISHED
    return Solution(best[space.number], status=status, evaluations=evaluations)


def _space(problem: Instance) -> _Space:
    graph, classes = problem.graph, problem.classes
    senders, receivers = dag.quotient_edges(graph.senders, graph.receivers, classes.ids)
    orders = [problem.priority_order, problem.topological_order]
    unique = [list(dict.fromkeys(classes.ids[order].tolist())) for order in orders]
    return _Space(classes.ids, classes.allowed, np.array(unique), senders, receivers)


def _padded(rows: np.ndarray) -> np.ndarray:
    """Returns `BATCH` rows, the last one repeated."""
    return np.concatenate([rows, np.repeat(rows[-1:], BATCH - len(rows), axis=0)])


def _draw(rng: np.random.Generator, space: _Space, at: np.ndarray, count: int) -> _Blocks:
    """Draws blocks, half of them segments and half of them balls."""
    members = np.zeros((count, len(at)), bool)
    device = rng.integers(0, space.allowed.shape[1], count)
    length = np.exp(rng.uniform(0, log(len(at) + 1), count)).astype(int)
    transfer = np.flatnonzero(at[space.senders] != at[space.receivers])
    graphs = _graphs(space, at)
    for row in range(count):
        if row % 2:
            order = space.orders[rng.integers(len(space.orders))]
            begin = rng.integers(1 - length[row], len(order))
            block = order[max(begin, 0) : begin + length[row]]
            if rng.random() < 0.5:
                block = block[at[block] == at[block[0]]]
        else:
            seed = rng.integers(len(at))
            if len(transfer) and rng.random() < 0.5:
                edge = rng.choice(transfer)
                ends = rng.permutation([space.senders[edge], space.receivers[edge]])
                seed, device[row] = ends[0], at[ends[1]]
            matrix, directed = graphs[rng.integers(len(graphs))]
            block = csgraph.breadth_first_order(
                matrix, seed, directed=directed, return_predecessors=False
            )[: length[row]]
        members[row, block] = True
    return _Blocks(members, device)


def _graphs(space: _Space, at: np.ndarray) -> list[tuple[sparse.csr_array, bool]]:
    """Returns matrices to search breadth first, and whether along their direction alone."""
    size = (len(at), len(at))
    graphs = []
    same = at[space.senders] == at[space.receivers]
    for senders, receivers in (
        (space.senders, space.receivers),
        (space.senders[same], space.receivers[same]),
    ):
        along = sparse.csr_array((np.ones(len(senders)), (senders, receivers)), size)
        graphs += [(along, False), (along, True), (along.T.tocsr(), True)]
    return graphs


def _moved(space: _Space, at: np.ndarray, blocks: _Blocks) -> np.ndarray:
    """Returns int32 [M, C]: each block on its device, as far as that supports it."""
    able = space.allowed.T[blocks.device]
    return np.where(blocks.members & able, blocks.device[:, None], at).astype(np.int32)


def _kicked(rng: np.random.Generator, space: _Space, at: np.ndarray) -> np.ndarray:
    """Moves a few blocks, whatever that costs."""
    for _ in range(rng.integers(1, _KICKS + 1)):
        at = _moved(space, at, _draw(rng, space, at, 1))[0]
    return at


def _joined(space: _Space, at: np.ndarray, blocks: _Blocks, better: np.ndarray) -> np.ndarray:
    """Returns int32 [J, C]: the best two blocks together, the best three, and so on."""
    rows, row = [], at
    for nth, block in enumerate(better.tolist()):
        row = _moved(space, row, _Blocks(blocks.members[[block]], blocks.device[[block]]))[0]
        rows += [row] if nth else []
    return np.array(rows, np.int32).reshape(-1, len(at))
