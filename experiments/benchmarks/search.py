"""What a search finds beside random search: `experiments.benchmarks search`.

On costs profiled on the host devices, the best latency that HSDAG predicts within its default
budget over the best of 10,000 random placements of the coarsened graph and the single devices, for
each zoo model.
"""

import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from experiments import build
from experiments import search as search_lib
from experiments.benchmarks import problems, timing
from experiments.console import progress
from placement.costs import tables, transfers
from placement.runtime import devices as devices_lib
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import Profile, Transfers


def run() -> None:
    """Prints HSDAG's best predicted latency beside random search's, serial objective."""
    table = timing.table(
        "serial objective, host devices, predicted ms",
        ("graph",),
        ("best single", "best of 10,000 random", "HSDAG", "ratio", "search s"),
    )
    for name in problems.NETWORKS:
        single_s, random_s, hsdag_s, search_s = _search_s(name)
        table.add_row(
            name,
            *(f"{1e3 * seconds:.3f}" for seconds in (single_s, random_s, hsdag_s)),
            f"{hsdag_s / min(single_s, random_s):.4f}",
            f"{search_s:.1f}",
        )
    Console(width=100).print(table)


def _search_s(name: str) -> tuple[float, float, float, float]:
    """Returns the best predicted latencies: single devices, random, HSDAG; and the search time."""
    config = problems.config(name)
    network, devices = build.network(config), devices_lib.resolve("host")
    with LocalMeasurer(network.model, devices) as measurer:
        transfer = transfers.matrices(measurer.ask(Transfers(devices)), len(devices))
        costs = tables.cost_model(network.graph, measurer.ask(Profile(devices)), transfer)
    problem = build.search_problem(network, costs, tuple(d.name for d in devices), "serial")
    num_ops, num_devices = problem.coarse.costs.compute_s.shape
    singles = np.tile(np.arange(num_devices)[:, None], (1, num_ops))
    draws = np.random.default_rng(0).integers(0, num_devices, (10_000, num_ops))
    with tempfile.TemporaryDirectory() as workdir:
        solution = search_lib.train(
            "hsdag",
            config,
            problem,
            problem.simulate,
            Path(workdir),
            seed=0,
            display=progress.Display(progress.WARNING),
        ).solution
    return (
        float(np.min(problem.simulate(singles))),
        float(np.min(problem.simulate(draws))),
        solution.value_s,
        solution.search_s,
    )
