"""The best lower bounds known for a run's problem, kept in bounds.json.

There is a bound for each of three sets of solutions. *Full* placements give every operation a
separate device. *Coarse* ones, which searches use, keep merged operations together
(`graphs.coarsen`). Under `makespan` both bounds hold for every order in which devices run their
operations. The third holds for coarse placements in the order of HEFT's upward rank, which most
methods keep. A bound of a set holds for its subsets: a full bound for coarse placements, a bound of
all orders for one order. The reverse is not true: a row has a bound only if the row's
solution is in the set.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from placement import files, solvers
from placement.costs import workloads
from placement.pipeline import loading
from placement.pipeline.results.rows import Row
from placement.reporting import runs
from placement.solvers import base
from placement.types import Problem

FILE = "bounds.json"


class Bounds(NamedTuple):
    """Lower bounds in seconds, which never decrease; -inf where nothing is known."""

    full_s: float  # of all placements, in any order
    coarse_s: float  # of coarse placements, in any order
    given_order_s: float  # of coarse placements, in the problem's order


def add_bounds(
    rows: Sequence[Row],
    problem: loading.SearchProblem,
    path: Path,
    optimum: workloads.Optimum | None = None,
) -> list[Row]:
    """Gives each row the best bound that holds for its placement; a known optimum is the best.

    Bounds come from the rows' own solvers, from `solvers.lower_bound` and from the file, which
    keeps the best ones; they are computed once for all runs with this file. A solver of contiguous
    placements keeps its own bound where that is better: it holds for no other row.
    """
    if optimum is None:
        bounds = _best_bounds(rows, problem, path)
    else:
        bounds = Bounds(*[optimum.value_s] * 3)
    bounded = []
    for row in rows:
        solution = row.solution
        bound_s = bounds.full_s
        if not row.is_full or problem.coarse is problem.full:
            bound_s = bounds.given_order_s if solution.order is None else bounds.coarse_s
        if solution.scope == base.CONTIGUOUS and not np.isnan(solution.bound_s):
            bound_s = max(bound_s, solution.bound_s)
        # The simulator's sums of float32 may lie below a bound by their rounding.
        if solution.value_s >= bound_s * (1 - base.bound_rounding(problem.full)):
            bound_s = min(bound_s, solution.value_s)
        solution = solution._replace(bound_s=bound_s if np.isfinite(bound_s) else float("nan"))
        bounded.append(row._replace(solution=solution))
    return bounded


def read(path: Path) -> dict[str, list[float]]:
    """Reads the bounds of a file, by problem; none if there is no file.

    Raises:
      UserError: the file cannot be read.
    """
    remedy = "remove it, and bounds are proved again"
    return files.read_json(path, {str: [float]}, remedy=remedy) if path.exists() else {}


def merge(path: Path, bounds: dict[str, list[float]]) -> None:
    """Keeps the better of each of the file's bounds and those of another file."""
    stored = read(path)
    better = {key: [*map(max, new, stored.get(key, new))] for key, new in bounds.items()}
    if stored | better != stored:
        runs.write_json(path, stored | better)


def _best_bounds(rows: Sequence[Row], problem: loading.SearchProblem, path: Path) -> Bounds:
    """Returns the best bounds of the file, of the rows' solvers and of fast relaxations."""
    stored, key = read(path), _digest(problem.full)
    is_same = problem.coarse is problem.full
    if key in stored:
        full_s, coarse_s, given_order_s = stored[key]
    else:
        full_s = solvers.lower_bound(problem.full, any_order=True)
        coarse_s = full_s if is_same else solvers.lower_bound(problem.coarse, any_order=True)
        given_order_s = solvers.lower_bound_in_order(problem.coarse)
    for row in rows:
        solution, is_full = row.solution, row.is_full or is_same
        if np.isnan(solution.bound_s):
            continue
        if solution.scope == base.ALL:
            full_s = max(full_s, solution.bound_s) if is_full else full_s
            coarse_s = max(coarse_s, solution.bound_s)
        elif solution.scope == base.GIVEN_ORDER:
            given_order_s = max(given_order_s, solution.bound_s)
    coarse_s = max(full_s, coarse_s)
    bounds = Bounds(full_s, coarse_s, max(coarse_s, given_order_s))
    if np.isfinite(full_s):
        merge(path, {key: list(bounds)})
    return bounds


def _digest(problem: Problem) -> str:
    """Returns a digest of everything that the objective's value depends on."""
    graph, digest = problem.graph, hashlib.sha256(problem.objective.encode())
    edges = graph.senders, graph.receivers, graph.tensors, graph.edge_bytes, graph.colocation
    copies = graph.copy_sources, graph.copy_readers, graph.copy_bytes, graph.copy_constants
    for array in map(np.asarray, jax.tree.leaves((edges, copies, problem.costs))):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]
