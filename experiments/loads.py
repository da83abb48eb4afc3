"""What placements ask of a machine beside one request's latency: pace as a pipeline, and memory."""

import math
from typing import NamedTuple

import numpy as np

from experiments import build
from experiments.methods import Entry, op_placement
from placement import simulators
from placement.types import Problem


class Load(NamedTuple):
    """Of a placement; nan where there is none that runs."""

    max_load_s: float  # seconds a request as a pipeline: the value of the objective 'max_load'
    memory_bytes: float  # what the fullest device holds


_NONE = Load(math.nan, math.nan)


def of(entries: list[Entry], setting: build.Setting) -> list[Load]:
    """The load of each entry's first candidate, whatever objective it was found for."""
    found = [_NONE] * len(entries)
    for full, problem in ((False, setting.coarse), (True, setting.full)):
        chosen = [
            i
            for i, entry in enumerate(entries)
            if entry.full is full and not entry.reference and np.isfinite(entry.solution.value_s)
        ]
        if not chosen:
            continue
        placements = np.array([_placement(entries[i], setting) for i in chosen], np.int32)
        as_pipeline = simulators.evaluator(problem._replace(objective="max_load"))
        for i, row, seconds in zip(chosen, placements, as_pipeline(placements), strict=True):
            found[i] = Load(float(seconds), _fullest_bytes(problem, row))
    return found


def _placement(entry: Entry, setting: build.Setting) -> np.ndarray:
    of_ops = op_placement(entry, setting.full)
    if entry.full:
        return of_ops
    placement = np.empty(setting.coarse.graph.num_ops, int)
    placement[setting.assignment] = of_ops
    return placement


def _fullest_bytes(problem: Problem, placement: np.ndarray) -> float:
    """Parts of one accelerator hold theirs together."""
    costs = problem.costs
    accelerator = np.asarray(costs.accelerator)
    used = np.bincount(placement, np.asarray(costs.memory_bytes), minlength=len(accelerator))
    together = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    return float(((together | np.eye(len(accelerator), dtype=bool)) @ used).max())
