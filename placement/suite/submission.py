"""Submissions: the placements of one method for problems of the suite, and their check.

A submission is a NumPy archive (.npz) with an array `PROBLEM.placement` int [N] for each problem
and, for problems under `makespan`, perhaps `PROBLEM.order` int [N], the order of priority. It says
nothing about values, which the check computes.
"""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from placement import suite
from placement.errors import UserError
from placement.graphs import dag
from placement.instance import Instance
from placement.suite.archive import Best

TOLERANCE = 1e-6  # relative: an improvement has to be larger


class Answer(NamedTuple):
    """A placement, and perhaps an order of priority."""

    placement: np.ndarray  # int32 [N]
    order: np.ndarray | None = None  # int32 [N]


class Summary(NamedTuple):
    """The scores of a submission on some problems."""

    num_feasible: int  # problems with a feasible answer
    num_problems: int
    geometric_mean: float  # of the scores; nan unless every problem has a feasible answer
    worst: float  # score; likewise
    num_best: int  # problems on which it reaches the best known value, or improves it


def read(path: Path) -> dict[str, Answer]:
    """Reads a submission.

    Raises:
      UserError: the file is no archive of arrays, or an array's name has another form.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (OSError, ValueError, EOFError, AttributeError, TypeError) as error:
        raise UserError(
            f"{str(path)!r} is no submission ({error}); give a NumPy archive (.npz) with arrays "
            "PROBLEM.placement and PROBLEM.order"
        ) from error
    kinds = {name: name.rpartition(".")[2] for name in arrays}
    problems = {name.rpartition(".")[0] for name, kind in kinds.items() if kind == "placement"}
    for name, kind in kinds.items():
        if kind not in ("placement", "order") or name.rpartition(".")[0] not in problems:
            raise UserError(
                f"{str(path)!r} has the array {name!r}; valid are PROBLEM.placement and, beside "
                "one, PROBLEM.order"
            )
    return {
        name: Answer(arrays[f"{name}.placement"], arrays.get(f"{name}.order"))
        for name in sorted(problems)
    }


def write(answers: Mapping[str, Answer], path: Path) -> None:
    """Writes a submission."""
    arrays = {f"{name}.placement": answer.placement for name, answer in answers.items()}
    arrays |= {
        f"{name}.order": answer.order
        for name, answer in answers.items()
        if answer.order is not None
    }
    np.savez_compressed(path, allow_pickle=False, **arrays)


def check(answers: Mapping[str, Answer]) -> dict[str, float]:
    """Returns the value of each answer in seconds, by problem; inf if it is not feasible.

    An answer is not feasible if it exceeds a memory, or uses a device that cannot run an operation.

    Raises:
      UserError: a problem does not exist, or an answer has another shape, values that are no
        devices, co-located operations on several devices, or an order that is not topological.
    """
    return {name: evaluate(name, suite.load(name), answer) for name, answer in answers.items()}


def evaluate(name: str, problem: Instance, answer: Answer) -> float:
    """Returns the value of an answer in seconds; inf if it is not feasible.

    Raises:
      UserError: as for `check`.
    """
    placement, order = np.asarray(answer.placement), answer.order
    num_ops, num_devices = problem.graph.num_ops, len(problem.devices)
    if placement.shape != (num_ops,) or placement.dtype.kind not in "iu":
        raise UserError(
            f"the placement of {name!r} has shape {placement.shape} and type {placement.dtype}; "
            f"give whole numbers of shape ({num_ops},)"
        )
    if placement.min(initial=0) < 0 or placement.max(initial=0) >= num_devices:
        raise UserError(
            f"the placement of {name!r} has devices from {placement.min()} to {placement.max()}; "
            f"give 0 to {num_devices - 1}"
        )
    placement = placement.astype(np.int32)
    if not np.array_equal(placement, placement[problem.leaders]):
        raise UserError(
            f"the placement of {name!r} separates operations that must share a device; see the "
            "problem's colocation"
        )
    if order is not None:
        if problem.objective != "makespan":
            raise UserError(
                f"the order of {name!r} has no meaning under {problem.objective!r}; leave it out"
            )
        dag.check_order(problem.graph, order)
        problem = problem.with_order(np.asarray(order, np.int32))
    return float(problem.value_s(placement))


def find_improvements(values_s: Mapping[str, float], known: Mapping[str, Best]) -> list[str]:
    """Returns the problems with a better value than the best known one, or without one before."""
    return [
        name
        for name, value_s in values_s.items()
        if value_s < (known[name].value_s * (1 - TOLERANCE) if name in known else math.inf)
    ]


def improve(
    answers: Mapping[str, Answer],
    values_s: Mapping[str, float],
    known: Mapping[str, Best],
    method: str,
) -> dict[str, Best]:
    """Returns the best known solutions with the improvements of a submission."""
    improved = dict(known)
    for name in find_improvements(values_s, known):
        answer = answers[name]
        bound_s = known[name].bound_s if name in known else math.nan
        placement = np.asarray(answer.placement, np.int32)
        order = None if answer.order is None else np.asarray(answer.order, np.int32)
        improved[name] = Best(values_s[name], bound_s, method, placement, order)
    return improved


def summarise(
    values_s: Mapping[str, float], known: Mapping[str, Best], problems: Collection[str]
) -> Summary:
    """Returns the scores of a submission on some problems: values over the best known ones.

    Args:
      values_s: from `check`.
      known: the best known solutions of these problems.
      problems: by name.
    """
    scores = np.array([values_s.get(name, math.inf) / known[name].value_s for name in problems])
    is_feasible = np.isfinite(scores)
    is_complete = bool(len(scores)) and bool(is_feasible.all())
    return Summary(
        num_feasible=int(is_feasible.sum()),
        num_problems=len(problems),
        geometric_mean=float(np.exp(np.log(scores).mean())) if is_complete else math.nan,
        worst=float(scores.max()) if is_complete else math.nan,
        num_best=int((scores <= 1 + TOLERANCE).sum()),
    )
