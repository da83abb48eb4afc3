"""What placements ask of a machine beside one request's latency: pace as a pipeline, and memory."""

import math
from typing import NamedTuple

import numpy as np

from placement import simulators
from placement.pipeline import loading, method_runs


class Load(NamedTuple):
    """Of a placement; nan where there is none that runs."""

    max_load_s: float  # seconds a request as a pipeline: the value of the objective 'max_load'
    memory_bytes: float  # what the fullest device holds


NONE = Load(math.nan, math.nan)


def of(entries: list[method_runs.Entry], problem: loading.SearchProblem) -> list[Load]:
    """The load of each entry's first placement, whatever objective it was found for."""
    found = [NONE] * len(entries)
    for full in (False, True):
        chosen = [
            i
            for i, entry in enumerate(entries)
            if entry.full is full and not entry.reference and np.isfinite(entry.solution.value_s)
        ]
        if not chosen:
            continue
        placed = method_runs.placed_on(entries[chosen[0]], problem).coarse
        placements = np.stack([entries[i].placements[0] for i in chosen])
        as_pipeline = simulators.evaluator(placed._replace(objective="max_load"))
        held = simulators.fullest_bytes(placed, placements)
        for i, seconds, num_bytes in zip(chosen, as_pipeline(placements), held, strict=True):
            found[i] = Load(float(seconds), float(num_bytes))
    return found
