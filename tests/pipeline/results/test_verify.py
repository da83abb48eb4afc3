"""What the table says of measured candidates, on outcomes given by hand."""

import math

import numpy as np
import pytest

from placement.pipeline.results import rows as rows_lib
from placement.pipeline.results import verify
from placement.pipeline.results.rows import Row
from placement.reporting import verdict
from placement.runtime.measurement.request import (
    Candidate,
    Failure,
    Interval,
    Measurement,
)
from placement.types import Solution


class GivenOutcomes:
    """Answers with the ratio that an affinity's device stands for; 'bad' fails."""

    RATIOS = {"single": 1.0, "first": 1.1, "second": 0.9}  # noqa: RUF012

    def ask(self, request):
        outcomes = [self._outcome(candidate.affinity["op"]) for candidate in request.candidates]
        baselines = outcomes[: request.num_baselines]
        return [
            outcome if isinstance(outcome, Failure) else self._paired(outcome, baselines)
            for outcome in outcomes
        ]

    def _paired(self, outcome, baselines):
        """To itself with a ratio of 1, to others with an interval, to a failure with none."""
        ratios = []
        for each in baselines:
            ratio, spread = math.nan, 0.0
            if not isinstance(each, Failure):
                ratio = outcome.latency.median / each.latency.median
                spread = 0.0 if each is outcome else 0.01
            ratios.append(Interval(ratio, ratio - spread, ratio + spread, 20))
        return outcome._replace(ratio=ratios[0], ratios=tuple(ratios))

    def _outcome(self, device):
        if device == "bad":
            return Failure("infer", "it broke")
        ratio = self.RATIOS[device]
        spread = Interval(ratio, ratio - 0.01, ratio + 0.01, 20)
        return Measurement(
            latency=spread,
            ratio=spread,
            submodels=1,
            output_error=0.0,
            tolerance=1e-3,
            compile_s=0.1,
        )


def make_row(method: str, on: int | None = None, **predicted_s: float) -> Row:
    """Of two operations, all `on` one device or each placement on two devices of its own."""
    values = tuple(predicted_s.values())
    devices = np.arange(2 * len(values), dtype=np.int32).reshape(-1, 2)
    placements = devices if on is None else np.full_like(devices, on)
    solution = Solution(placements[0], values[0], evaluations=1, elite=placements)
    candidates = tuple(Candidate({"op": name}, ()) for name in predicted_s)
    return Row(method, solution, candidates, values)


def best(rows) -> str | None:
    """The method of the best placement."""
    placement = verdict.decide(rows).placement
    return placement and placement.method


def table(*given: Row):
    measured = verify.measure(GivenOutcomes(), list(given), 1.0)
    rows = rows_lib.to_json(measured)
    return measured, rows, best(rows)


def test_prediction_is_of_measured_placement() -> None:
    learned = make_row("hsdag", first=0.5, second=0.6)
    chosen, rows, method = table(make_row("single:A", 0, single=1.0), learned)
    assert chosen[1].candidates == (Candidate({"op": "second"}, ()),)
    assert chosen[1].placements.tolist() == [[2, 3]] == [chosen[1].solution.placement.tolist()]
    assert rows[1]["predicted_s"] == 0.6
    assert rows[1]["measured_s"]["median"] == 0.9
    assert rows[1]["versus_interval"] == pytest.approx([0.89, 0.91])
    assert rows[1]["measurements"] == 3
    assert method == "hsdag"


def test_failure_is_never_best() -> None:
    _, rows, method = table(make_row("single:A", 0, single=1.0), make_row("hsdag", bad=0.1))
    assert rows[1]["measured_s"] is None
    assert rows[1]["versus_best_single_device"] is None
    assert rows[1]["versus_interval"] is None
    assert rows[1]["status"] == "failed: infer: it broke"
    assert method == "single:A"


def test_ratios_need_running_device() -> None:
    """The one predicted best computes wrong outputs, as bf16 does for some models."""
    singles = make_row("single:A", 0, bad=0.1), make_row("single:B", 1, single=1.0)
    _, rows, method = table(*singles, make_row("hsdag", second=0.5))
    assert rows[2]["versus_best_single_device"] == 0.9
    assert method == "hsdag"


def test_placement_on_one_device() -> None:
    """Timed another way it might be faster than itself."""
    singles = make_row("single:A", 0, first=0.5), make_row("single:B", 1, single=1.0)
    chosen, rows, method = table(
        *singles, make_row("hetero", 1, second=1.0), make_row("lns", 0, bad=0.1)
    )
    assert chosen[2].candidates == chosen[1].candidates
    assert rows[2]["measured_s"] == rows[1]["measured_s"]
    assert rows[3]["measured_s"] == rows[0]["measured_s"]
    assert method == "single:B"


def test_ratios_pair_with_fastest_device() -> None:
    """Not with the one that is predicted to be."""

    given = [make_row("single:A", 0, first=0.5), make_row("single:B", 1, single=1.0)]
    given += [make_row("random", second=0.9)]
    _, (slower, fastest, random), _ = table(*given)
    assert (fastest["versus_best_single_device"], fastest["versus_interval"]) == (1.0, [1.0, 1.0])
    assert slower["versus_best_single_device"] == pytest.approx(1.1)
    assert slower["versus_interval"] == pytest.approx([1.09, 1.11])
    assert random["versus_interval"] == pytest.approx([0.89, 0.91])
