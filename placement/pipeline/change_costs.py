"""Measurement of the cost of changes between groups of cores, for a profile.

The costs of single operations do not show how much a change of groups costs
(`analysis.group_changes`), and a search finds the placements for which the difference is largest.
So the profile measures such placements, in the same rounds as the group of all cores:

1. It searches at several prices of a change, so that the placements have many or few changes.
2. It measures the placements and fits the costs of changes.
3. It searches with these costs, measures the result and fits again, until a search finds a
   placement that was measured before.

The costs of the profile are cautious: they exceed the most probable ones by a standard
deviation. A later search that evaluates more placements would otherwise again find those whose
costs are underestimated.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement import methods
from placement.analysis import group_changes
from placement.analysis.group_changes import GroupChanges
from placement.instance import Instance
from placement.pipeline import loading
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import MIN_SAMPLES, Measure, Measurement
from placement.types import CostModel

LEFT_OUT = "the cost of changes between groups of cores"  # what is missing where time was short

# Prices of a change in step 1, relative to the latency of all cores.
_PRICES = (0.0, 0.003, 0.02)
_MAX_REPEATS = 6  # of step 3
# Standard deviations of caution. It also hides placements that are less than about 5% faster. With
# less caution, what looks faster is more often not.
_NUM_DEVIATIONS = 1.0
_BUDGET = 300_000  # placements that each search simulates
_SEARCH_SHARE = 0.15  # of the remaining time, for each search
_MAX_ROUNDS, _MEASURING_S = 15, 1.0  # of each measurement, with more rounds in this time


class _Trial(NamedTuple):
    """A placement that a search found."""

    order: np.ndarray  # int32 [N]: the order of priority
    placement: np.ndarray  # int32 [N]
    latency_s: float = np.nan  # measured, at the speed of the machine during the profile


def measure(
    net: loading.Network,
    costs: CostModel,
    measurer: Measurer,
    limit_s: float,
    note: Callable[[str], None],
) -> tuple[dict[str, Any], bool]:
    """Measures the cost of changes between devices that share cores.

    Args:
      net: the model.
      costs: the profiled costs of the measurer's devices, which share resources.
      measurer: has the devices.
      limit_s: wall time.
      note: receives the current step.

    Returns:
      The JSON-able costs (`group_changes.to_json`), with the latencies of each measured placement
      as `placements` (`fitted_s` by the most probable costs); and whether they are complete. If
      no placement could be measured, or there was no time, the costs are those of the prior.
    """
    deadline_s = time.monotonic() + limit_s
    num_cores = [len(device.cores) for device in measurer.devices]
    num_devices = len(num_cores)
    no_changes = GroupChanges(np.zeros(num_devices), np.zeros((num_devices, num_devices)))
    profiled = _make_problem(net, costs, measurer, no_changes)
    baseline = np.full(profiled.coarse.graph.num_ops, np.argmax(num_cores), np.int32)
    baseline_s = _predict(profiled.coarse, baseline)
    trials = [_Trial(profiled.coarse.priority_order, baseline, baseline_s)]

    def search(changes: GroupChanges) -> _Trial:
        problem = _make_problem(net, costs, measurer, changes).coarse
        share_s = _SEARCH_SHARE * max(0.0, deadline_s - time.monotonic())
        solution = methods.solve(problem, "search", time_limit_s=share_s, budget=_BUDGET)
        order = problem.priority_order if solution.order is None else solution.order
        return _Trial(order, baseline if solution.placement is None else solution.placement)

    def measure_new(candidates: Sequence[_Trial]) -> bool:
        """Adds the candidates that were not measured before; returns whether there are any."""
        measured_placements = {trial.placement.tobytes() for trial in trials}
        new = {trial.placement.tobytes(): trial for trial in candidates}
        new_trials = [trial for key, trial in new.items() if key not in measured_placements]
        # Half of the time is for compiling. In a round each placement runs twice.
        half_s = (deadline_s - time.monotonic()) / 2
        round_s = 2 * sum(
            _predict(profiled.coarse.with_order(trial.order), trial.placement)
            for trial in (trials[0], *new_trials)
        )
        num_rounds = min(_MAX_ROUNDS, int(half_s / round_s))
        if not new_trials or num_rounds < MIN_SAMPLES:
            return False
        measured = [
            loading.make_candidate(
                profiled.with_order(trial.order), trial.placement, measurer.devices, "concurrent"
            )
            for trial in (trials[0], *new_trials)
        ]
        request = Measure(
            measured, num_rounds, min(_MEASURING_S, half_s), compile_s=half_s, accept_wrong=True
        )
        num_known = len(trials)
        for trial, outcome in zip(new_trials, measurer.ask(request)[1:], strict=True):
            # The ratio to the group of all cores is steadier than either latency.
            if isinstance(outcome, Measurement) and np.isfinite(outcome.ratio.median):
                trials.append(trial._replace(latency_s=baseline_s * outcome.ratio.median))
        return len(trials) > num_known

    def fit(num_deviations: float = 0.0) -> GroupChanges:
        problems = [profiled.coarse.with_order(trial.order) for trial in trials]
        latency_s = np.array([trial.latency_s for trial in trials])
        placements = [trial.placement for trial in trials]
        return group_changes.fit(
            problems, placements, latency_s, num_cores, num_deviations=num_deviations
        )

    candidates = []
    for number, price in enumerate(_PRICES, 1):
        if time.monotonic() > deadline_s:
            break
        note(f"changes between groups of cores: search {number} of {len(_PRICES)}")
        price_s = price * baseline_s * ~np.eye(num_devices, dtype=bool)
        candidates.append(search(no_changes._replace(latency_s=price_s)))
    note("changes between groups of cores: measuring")
    has_changes = any((trial.placement != baseline).any() for trial in candidates)
    is_measured = measure_new(candidates)
    is_complete = is_measured or (not has_changes and time.monotonic() <= deadline_s)
    number = 0
    while is_measured and number < _MAX_REPEATS:
        number += 1
        note(f"changes between groups of cores: check {number} of {_MAX_REPEATS}")
        is_measured = measure_new([search(fit())])
    fitted = _make_problem(net, costs, measurer, fit())
    rows = [
        {
            "measured_s": trial.latency_s,
            "profiled_s": _predict(profiled.coarse.with_order(trial.order), trial.placement),
            "fitted_s": _predict(fitted.coarse.with_order(trial.order), trial.placement),
        }
        for trial in trials
    ]
    changes = group_changes.to_json(fit(_NUM_DEVIATIONS))
    return changes | {"placements": rows}, is_complete


def _make_problem(
    net: loading.Network, costs: CostModel, measurer: Measurer, changes: GroupChanges
) -> loading.SearchProblem:
    names = tuple(device.name for device in measurer.devices)
    return loading.make_search_problem(net, group_changes.apply(costs, changes), names, "makespan")


def _predict(problem: Instance, placement: np.ndarray) -> float:
    return float(np.asarray(problem.evaluate(placement[None]))[0])
