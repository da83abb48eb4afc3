"""Learning on four JAX devices gives the same numbers as on one, up to rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from placement.methods import learned
from placement.solvers.limits import SearchLimits
from tests import helpers
from tests.experiments.command import QUICK

pytestmark = pytest.mark.nightly
METHOD = "scheduler:hidden_size=4,num_samples=16,episode_steps=1"


def run_search() -> list[dict[str, float]]:
    """Returns the records of three steps on a graph of ten operations."""
    graph = helpers.fork_join(2, 4)
    costs = helpers.random_costs(np.random.default_rng(0), graph, 3)
    problem = helpers.as_problem(graph, costs, "makespan")
    search = learned.Search.prepare(METHOD, problem)
    records: list[dict[str, float]] = []
    limits = SearchLimits(600.0, 3 + 3 * 16, starts="single")
    search.run(search.start(0, limits), limits, lambda report, _: records.extend(report.records))
    return records


def test_devices_share_samples():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    quick = {name.upper(): str(int(x) if x is True else x) for name, x in QUICK.items()}
    process = subprocess.run(
        [sys.executable, "-m", "tests.learning.test_mesh"],
        cwd=Path(__file__).parents[2],
        env=os.environ | quick | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    num_devices, records = json.loads(process.stdout)
    assert num_devices == 4
    for record, expected in zip(records, run_search(), strict=True):
        assert record == pytest.approx(expected, rel=1e-3, abs=1e-4)


if __name__ == "__main__":
    import jax

    print(json.dumps([len(jax.devices()), run_search()]))
