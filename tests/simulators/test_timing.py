"""When operations run: against the simulator, and what slack promises against it."""

import itertools

import jax
import numpy as np
import pytest

from placement.simulators import makespan, timing
from tests.simulators import reference

SIZE = (10, 20, 14, 3)  # operations, edges (some parallel), tensors, devices
_timing = jax.jit(timing.timing)
_latency = jax.jit(makespan.latency)


def _cases(count: int):
    for problem, placements in itertools.islice(reference.random_problems("makespan", SIZE), count):
        finite = np.isfinite(problem.costs.compute_s)
        compute_s = np.where(finite, problem.costs.compute_s, 1.0)
        problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
        tables = problem.makespan_tables
        for placement in placements[:3]:
            latency_s = float(_latency(tables, placement[:, None])[0])
            if np.isfinite(latency_s):  # there may be no way between two devices
                yield tables, placement, latency_s


def test_the_last_operation_ends_when_the_simulator_says():
    for tables, placement, latency_s in _cases(20):
        times = _timing(tables, placement)
        assert float(times.latency_s) == pytest.approx(latency_s, rel=1e-6)
        compute_s = np.zeros(10)
        compute_s[tables.steps.op] = tables.compute_s[
            np.arange(len(tables.steps.op)), placement[tables.steps.op]
        ]
        np.testing.assert_allclose(times.finish_s - times.start_s, compute_s, rtol=1e-4)


def test_an_operation_may_take_longer_by_its_slack_and_no_more():
    for tables, placement, latency_s in _cases(5):
        times = _timing(tables, placement)
        assert np.min(times.slack_s) == pytest.approx(0, abs=1e-5 * latency_s)
        for op, slack_s in enumerate(np.asarray(times.slack_s).tolist()):
            for longer_s, later_s in ((slack_s, 0.0), (slack_s + latency_s, latency_s)):
                # The order of priority stays as it is.
                compute_s = tables.compute_s + np.where(tables.steps.op == op, longer_s, 0)[:, None]
                changed = tables._replace(compute_s=compute_s.astype(np.float32))
                assert float(_latency(changed, placement[:, None])[0]) == pytest.approx(
                    latency_s + later_s, rel=1e-4
                )
