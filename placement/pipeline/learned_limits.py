"""Limits of memory learned from the measured placements of a run."""

from collections.abc import Sequence

import numpy as np

from placement.analysis import memory_bounds
from placement.pipeline import loading
from placement.pipeline.results.rows import Row
from placement.reporting import units
from placement.runtime.measurement.request import MEMORY_STAGE, Failure, Measurement


def ran_out_of_memory(row: Row) -> bool:
    """Returns whether a row's placement failed because a device had too little memory."""
    outcome = row.outcome
    is_placement = not row.is_reference
    return is_placement and isinstance(outcome, Failure) and outcome.stage == MEMORY_STAGE


def learn(
    net: loading.Network, problem: loading.SearchProblem, rows: Sequence[Row]
) -> tuple[loading.SearchProblem, list[str]]:
    """Lowers the limits of devices that ran out of memory (`memory_bounds.learn_capacity`).

    Args:
      net: the network of the problem.
      problem: the problem that the rows are of.
      rows: measured rows.

    Returns:
      The problem with the new limits, and a sentence about each of them; none if nothing was
      learned.
    """
    names = problem.full.devices
    capacity_bytes = np.asarray(problem.full.costs.capacity_bytes, np.float64)
    with_tensors = loading.limit_memory(net, problem, capacity_bytes)
    placed_rows = [row for row in rows if not row.is_reference]
    needs = {
        row.method: row.placed_problem(with_tensors).coarse.peak_bytes(row.placements[0])
        for row in placed_rows
        if isinstance(row.outcome, Measurement | Failure)
    }
    succeeded = [needs[row.method] for row in placed_rows if isinstance(row.outcome, Measurement)]
    succeeded_bytes = np.array(succeeded).reshape(-1, len(names))
    sentences = []
    for row in filter(ran_out_of_memory, placed_rows):
        failed_bytes = needs[row.method]
        if (failed_bytes > capacity_bytes).any():  # by what another row has shown
            continue
        assert isinstance(row.outcome, Failure)
        used_names = [name for name, used in zip(names, failed_bytes, strict=True) if used]
        named = [name for name in used_names if f"[{name.split('.')[0]}]" in row.outcome.cause]
        learned = memory_bounds.learn_capacity(
            capacity_bytes,
            failed_bytes,
            succeeded_bytes,
            names.index(named[0]) if len(named) == 1 else None,
        )
        if learned is None:
            continue
        device = int(np.argmax(learned < capacity_bytes))
        sentences.append(
            f"{names[device]} ran out of memory where the placement of {row.method} needs "
            f"{units.size(failed_bytes[device])} on it; its limit is below that from now on"
        )
        capacity_bytes = learned
    return loading.limit_memory(net, problem, capacity_bytes), sentences
