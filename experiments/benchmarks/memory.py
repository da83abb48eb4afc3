"""Memory of the plug-in, measured and predicted: `experiments.benchmarks memory`.

The overhead of a host device is what a profile measures: the memory of the CPU plug-in beyond the
constants and tensors of a model (`placement.runtime.measurement.worker.device_memory`). It is
measured in two profiles, each in a process of its own. Then the model is cut into two halves in
topological order, with about equal constants. Each half is a submodel that is profiled by itself.
The prediction for a half is its share of the overhead of the first profile, as the costs of a
search count it (`placement.costs.tables.limit_memory`).
"""

import json
import math
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.console import Console

from placement import zoo
from placement.costs import roofline, tables
from placement.reporting.tables import grids
from placement.runtime import devices
from placement.runtime.execution import split
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import Profile
from placement.runtime.models import extract, frontend

GRAPHS = "resnet50", "inception_v3", "bert:layers=4"
HEADER = (
    *("network", "constants MB", "overhead MB", "again MB", "half's constants MB"),
    *("predicted MB", "measured MB"),
)


class Result(NamedTuple):
    """The overheads of a network and of one of its halves, in bytes."""

    graph: str
    constant_bytes: float
    overheads_bytes: tuple[float, float]  # in two profiles
    half_constant_bytes: float
    predicted_bytes: float  # the overhead of the half
    measured_bytes: float  # likewise


def run() -> None:
    """Prints two rows for each network, one for each half."""
    Console(width=120).print(
        grids.rich_table(HEADER, make_rows(measure()), title="memory of the CPU plug-in")
    )


def measure() -> list[Result]:
    """Returns the results of every network, and prints them to stderr."""
    results = []
    for name in GRAPHS:
        model = frontend.prepare(zoo.build(name), "")
        overheads_bytes = measure_overhead(model), measure_overhead(model)
        graph = extract.op_graph(model, name=name, constants=False).graph
        costs = roofline.cost_model(graph, ("cpu",))  # of these only the memory is used
        limited = tables.limit_memory(costs, graph, (math.inf,), overheads_bytes[:1])
        op_overhead_bytes = limited.memory_bytes - costs.memory_bytes
        constant_bytes = float(graph.weight_bytes.sum())
        is_second = graph.weight_bytes.cumsum() > constant_bytes / 2
        segments: list[list[str]] = [[], []]
        for op, half in zip(graph.op_names, is_second.tolist(), strict=True):
            segments[half].append(op)
        halves = [split.Segment("CPU", tuple(ops)) for ops in segments]
        submodels = split.build_submodels(model, split.split_model(model, halves).parts, {})
        for submodel, is_half in zip(submodels, (~is_second, is_second), strict=True):
            result = Result(
                *(name, constant_bytes, overheads_bytes),
                float(graph.weight_bytes[is_half].sum()),
                float(op_overhead_bytes[is_half].sum()),
                measure_overhead(submodel),
            )
            print(result, file=sys.stderr, flush=True)
            results.append(result)
    return results


def measure_overhead(model: Any) -> float:
    """Measures the overhead of an `ov.Model` on a host device, in a process of its own."""
    host = devices.resolve("host:f32,f32")[:1]
    with LocalMeasurer(model, host) as measurer:
        (profile,) = measurer.ask(Profile(host, limit_s=0.0))
    assert profile.overhead_bytes is not None
    return profile.overhead_bytes


def make_rows(results: Iterable[Result]) -> list[list[str]]:
    """Returns a row of `HEADER` for each result."""
    return [
        [
            result.graph,
            *(
                f"{num_bytes / 1e6:.1f}"
                for num_bytes in (result.constant_bytes, *result.overheads_bytes, *result[3:])
            ),
        ]
        for result in results
    ]


if __name__ == "__main__":
    print(json.dumps(measure()))
