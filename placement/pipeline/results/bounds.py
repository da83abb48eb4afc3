"""The best lower bound known for what a run places, kept in bounds.json.

Two sets of placements have bounds. *Full* ones give every operation a device of its own choice;
*coarse* ones, in which searches work, keep merged operations together (`graphs.coarsen`). A full
bound holds for coarse placements too, whose operations a device may run in another order; the
reverse is not true: a coarse one stands beside a row only if the row's placement is coarse.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from placement import files, solvers
from placement.pipeline import loading
from placement.pipeline.method_runs import Entry
from placement.reporting import runs
from placement.solvers import base
from placement.types import Problem, Solution

FILE = "bounds.json"


class Bounds(NamedTuple):
    """Lower bounds of the objective; -inf where nothing is known."""

    full_s: float
    coarse_s: float  # at least full_s


def beside(entries: list[Entry], problem: loading.SearchProblem, path: Path) -> list[Entry]:
    """The entries with the best bound that holds for each one's placement.

    Bounds come from the entries' own solvers, from `solvers.lower_bound` and from the file, where
    the best are kept: computed once for all runs with this file. A solver of contiguous placements
    keeps its own bound where it is better: it holds for no other row.
    """
    known = _known(entries, problem, path)
    return [entry._replace(solution=_bounded(entry, known)) for entry in entries]


def read(path: Path) -> dict[str, list[float]]:
    """The bounds of a file, by problem; none if there is no file.

    Raises:
      UserError: it cannot be read.
    """
    remedy = "remove it, and bounds are proved anew"
    return files.read_json(path, {str: [float]}, _pairs, remedy=remedy) if path.exists() else {}


def merge(path: Path, found: dict[str, list[float]]) -> None:
    """Keeps the better of each of the file's bounds and of others that `read` returned."""
    kept = read(path)
    better = {key: [*map(max, pair, kept.get(key, pair))] for key, pair in found.items()}
    if kept | better != kept:
        runs.write_json(path, kept | better)


def _pairs(bounds: dict[str, list[float]]) -> dict[str, list[float]]:
    if any(len(pair) != len(Bounds._fields) for pair in bounds.values()):
        raise ValueError("its bounds are no pairs")
    return bounds


def _bounded(entry: Entry, known: Bounds) -> Solution:
    solution = entry.solution
    bound_s = known.full_s if entry.full else known.coarse_s
    if solution.scope == base.CONTIGUOUS:
        bound_s = max(bound_s, -np.inf if np.isnan(solution.bound_s) else solution.bound_s)
    # Sums of float32 in another order may lie below a bound by their rounding.
    near = solution.value_s >= bound_s * (1 - base.ROUNDING)
    bound_s = min(bound_s, solution.value_s) if near else bound_s
    return solution._replace(bound_s=bound_s if np.isfinite(bound_s) else float("nan"))


def _known(entries: list[Entry], problem: loading.SearchProblem, path: Path) -> Bounds:
    kept = read(path)
    key = _digest(problem.full)
    same = problem.coarse is problem.full
    full_s, coarse_s = kept.get(key) or (
        solvers.lower_bound(problem.full, any_order=not same),
        -np.inf if same else solvers.lower_bound(problem.coarse),
    )
    for entry in entries:
        solution = entry.solution
        if solution.scope == base.ALL and not np.isnan(solution.bound_s):
            full_s = max(full_s, solution.bound_s) if entry.full or same else full_s
            coarse_s = max(coarse_s, solution.bound_s)
    found = Bounds(full_s, max(full_s, coarse_s))
    if np.isfinite(found.full_s) and kept.get(key) != list(found):
        runs.write_json(path, kept | {key: found})
    return found


def _digest(problem: Problem) -> str:
    """Of all that the objective's value depends on."""
    graph, costs = problem.graph, problem.costs
    digest = hashlib.sha256(problem.objective.encode())
    of_graph = (graph.senders, graph.receivers, graph.tensors, graph.edge_bytes, graph.colocation)
    for array in map(np.asarray, (*of_graph, *jax.tree.leaves(costs))):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]
