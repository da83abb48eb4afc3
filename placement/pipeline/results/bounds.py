"""The best lower bounds known for a run's problem, kept in bounds.json.

Under `makespan` one bound holds for every order in which devices run their operations, and another
for the order of HEFT's upward rank, which most methods keep. Where the order does not matter they
are equal.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from placement import files, solvers
from placement.costs import workloads
from placement.pipeline.results.rows import Row
from placement.problem import Problem
from placement.reporting import runs
from placement.solvers import base

FILE = "bounds.json"


def add_bounds(
    rows: Sequence[Row], problem: Problem, path: Path, optimum: workloads.Optimum | None = None
) -> list[Row]:
    """Gives each row the best bound that holds for its placement; a known optimum is the best.

    Bounds come from the rows' own solvers, from `solvers.lower_bound` and from the file, which
    keeps the best ones; they are computed once for all runs with this file. A solver of contiguous
    placements keeps its own bound where that is better: it holds for no other row.
    """
    stored, key = read(path), _digest(problem)
    if optimum is not None:
        any_order_s = given_order_s = optimum.value_s
    elif key in stored:
        any_order_s, given_order_s = stored[key]
    else:
        any_order_s = solvers.lower_bound(problem, any_order=True)
        given_order_s = solvers.lower_bound_in_order(problem)
    if optimum is None:
        for solution in (row.solution for row in rows if not np.isnan(row.solution.bound_s)):
            if solution.scope == base.ALL:
                any_order_s = max(any_order_s, solution.bound_s)
            elif solution.scope == base.GIVEN_ORDER:
                given_order_s = max(given_order_s, solution.bound_s)
        given_order_s = max(any_order_s, given_order_s)
        if np.isfinite(any_order_s):
            merge(path, {key: [any_order_s, given_order_s]})
    bounded = []
    for row in rows:
        solution = row.solution
        bound_s = given_order_s if solution.order is None else any_order_s
        if solution.scope == base.CONTIGUOUS and not np.isnan(solution.bound_s):
            bound_s = max(bound_s, solution.bound_s)
        # The simulator's sums of float32 may lie below a bound by their rounding.
        if solution.value_s >= bound_s * (1 - base.bound_rounding(problem)):
            bound_s = min(bound_s, solution.value_s)
        solution = solution._replace(bound_s=bound_s if np.isfinite(bound_s) else float("nan"))
        bounded.append(row._replace(solution=solution))
    return bounded


def read(path: Path) -> dict[str, list[float]]:
    """Reads the bounds of a file, by problem; none without a file."""
    remedy = "remove it, and bounds are proved again"
    return files.read_json(path, {str: [float]}, remedy=remedy) if path.exists() else {}


def merge(path: Path, bounds: dict[str, list[float]]) -> None:
    """Keeps the better of each of the file's bounds and those of another file."""
    stored = read(path)
    better = {key: [*map(max, new, stored.get(key, new))] for key, new in bounds.items()}
    if stored | better != stored:
        runs.write_json(path, stored | better)


def _digest(problem: Problem) -> str:
    """Returns a digest of everything that the objective's value depends on."""
    graph, digest = problem.graph, hashlib.sha256(problem.objective.encode())
    edges = graph.senders, graph.receivers, graph.tensors, graph.edge_bytes, graph.colocation
    copies = graph.copy_sources, graph.copy_readers, graph.copy_bytes, graph.copy_constants
    for array in map(np.asarray, jax.tree.leaves((edges, copies, problem.costs))):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]
