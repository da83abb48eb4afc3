"""The best lower bounds known for a run's problem, kept in bounds.json.

Two sets of placements have bounds. *Full* placements give every operation a device of its own;
*coarse* ones, which searches use, keep merged operations together (`graphs.coarsen`). A full bound
holds for coarse placements too, whose operations a device may run in another order. The reverse is
not true: a coarse bound stands beside a row only if the row's placement is coarse.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

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
        full_s, coarse_s = _best_bounds(rows, problem, path)
    else:
        full_s = coarse_s = optimum.value_s
    bounded = []
    for row in rows:
        solution = row.solution
        bound_s = full_s if row.is_full else coarse_s
        if solution.scope == base.CONTIGUOUS and not np.isnan(solution.bound_s):
            bound_s = max(bound_s, solution.bound_s)
        # Sums of float32 in another order may lie below a bound by their rounding.
        if solution.value_s >= bound_s * (1 - base.ROUNDING):
            bound_s = min(bound_s, solution.value_s)
        solution = solution._replace(bound_s=bound_s if np.isfinite(bound_s) else float("nan"))
        bounded.append(row._replace(solution=solution))
    return bounded


def read(path: Path) -> dict[str, list[float]]:
    """Reads the bounds of a file, by problem; none if there is no file.

    Raises:
      UserError: the file cannot be read.
    """

    def check_pairs(bounds: dict[str, list[float]]) -> dict[str, list[float]]:
        if any(len(pair) != 2 for pair in bounds.values()):
            raise ValueError("its bounds are no pairs")
        return bounds

    remedy = "remove it, and bounds are proved again"
    return (
        files.read_json(path, {str: [float]}, check_pairs, remedy=remedy) if path.exists() else {}
    )


def merge(path: Path, bounds: dict[str, list[float]]) -> None:
    """Keeps the better of each of the file's bounds and those of another file."""
    stored = read(path)
    better = {key: [*map(max, pair, stored.get(key, pair))] for key, pair in bounds.items()}
    if stored | better != stored:
        runs.write_json(path, stored | better)


def _best_bounds(
    rows: Sequence[Row], problem: loading.SearchProblem, path: Path
) -> tuple[float, float]:
    """Returns lower bounds of full and of coarse placements; -inf where nothing is known."""
    stored = read(path)
    key = _digest(problem.full)
    is_same = problem.coarse is problem.full
    full_s, coarse_s = stored.get(key) or (
        solvers.lower_bound(problem.full, any_order=not is_same),
        -np.inf if is_same else solvers.lower_bound(problem.coarse),
    )
    for row in rows:
        solution = row.solution
        if solution.scope == base.ALL and not np.isnan(solution.bound_s):
            full_s = max(full_s, solution.bound_s) if row.is_full or is_same else full_s
            coarse_s = max(coarse_s, solution.bound_s)
    bounds = full_s, max(full_s, coarse_s)
    if np.isfinite(full_s) and stored.get(key) != list(bounds):
        runs.write_json(path, stored | {key: bounds})
    return bounds


def _digest(problem: Problem) -> str:
    """Returns a digest of everything that the objective's value depends on."""
    graph, costs = problem.graph, problem.costs
    digest = hashlib.sha256(problem.objective.encode())
    graph_arrays = (
        graph.senders,
        graph.receivers,
        graph.tensors,
        graph.edge_bytes,
        graph.colocation,
    )
    copy_arrays = graph.copy_sources, graph.copy_readers, graph.copy_bytes, graph.copy_constants
    arrays = (*graph_arrays, *jax.tree.leaves(costs), *(copy_arrays if copy_arrays[0].size else ()))
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]
