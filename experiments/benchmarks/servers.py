"""Groups of cores on described servers: `experiments.benchmarks servers`. All times are simulated.

A server has C equal cores. Its devices are all cores together, both halves, all quarters, and so on
down to groups of C / 16 cores. The devices share cores: while a group computes, no other group with
one of its cores does. A group of n cores takes

    launch_s + synchronise_s * log2(n)
        + max((s + (1 - s) / n) * flops / flop_per_s, moved_bytes / (n * bytes_per_s))

for an operation (`placement.costs.roofline` counts both), by Amdahl's law with the serial share s
of a kernel. The rates of a core, and the time to synchronise, are assumptions. So is the serial
share, which decides how much a placement gains; the table has three. On two cores of a server, two
threads took 0.54 to 0.58 of the time of one for whole networks, which by the same law is a share
of 0.08 to 0.16.
"""

import json
import math
import sys
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from rich.console import Console

from placement import methods, solvers
from placement.costs import roofline
from placement.costs.roofline import DeviceSpec
from placement.pipeline import loading
from placement.reporting.tables import grids
from placement.types import CostModel, OpGraph

GRAPHS = "inception_v3", "two_stream", "bert:layers=4", "nmt:steps=8"
NUM_CORES = 16, 64
SERIAL_SHARES = 0.02, 0.08, 0.16
HEADER = (
    *("network", "cores", "serial share", "all cores ms", "placement ms"),
    *("placement / all cores", "bound / all cores"),
)
# Of one core: AVX-512 at 2.5 GHz with two fused units gives 160 GFLOP/s in f32.
_FLOP_PER_S = 160e9
_SHARES_OF_PEAK = {"matmul": 0.7, "convolution": 0.7, "depthwise": 0.2, "vector": 0.25}
_BYTES_PER_S = 5e9
_LAUNCH_S = 1e-6
_SYNCHRONISE_S = 0.5e-6
_HANDOVER_S = 5e-6  # to another group: the waiting thread wakes up
_NUM_PARTS = 16  # the number of smallest groups
_BUDGET = 200_000  # evaluations
_LIMIT_S = 300.0


class Result(NamedTuple):
    """The latencies of one network on one server, in seconds."""

    graph: str
    num_cores: int
    serial_share: float
    all_cores_s: float
    placement_s: float
    bound_s: float


def run() -> None:
    """Prints a table, a row for each network, server and serial share."""
    Console(width=120).print(
        grids.rich_table(HEADER, make_rows(measure()), title="groups of cores, simulated")
    )


def measure() -> list[Result]:
    """Returns the result of every network and server, and prints it to stderr."""
    results = []
    for name in GRAPHS:
        network = loading.build_graph_network(name)
        for num_cores in NUM_CORES:
            for serial_share in SERIAL_SHARES:
                names, costs = describe_server(network.graph, num_cores, serial_share)
                problem = loading.make_search_problem(network, costs, names, "makespan").coarse
                all_cores_s = problem.value_s(problem.single_devices[0])
                solution = methods.solve(problem, "search", time_limit_s=_LIMIT_S, budget=_BUDGET)
                result = Result(
                    *(name, num_cores, serial_share, all_cores_s),
                    *(solution.value_s, solvers.lower_bound(problem, any_order=True)),
                )
                print(result, file=sys.stderr, flush=True)
                results.append(result)
    return results


def describe_server(
    graph: OpGraph, num_cores: int, serial_share: float
) -> tuple[tuple[str, ...], CostModel]:
    """Returns the names of the groups, all cores first, and the costs of a graph on them.

    Args:
      graph: N operations.
      num_cores: a power of two, at least 16.
      serial_share: the share of a kernel's work that one core does alone.
    """
    sizes = [num_cores >> level for level in range(int(math.log2(_NUM_PARTS)) + 1)]
    groups = [(size, start) for size in sizes for start in range(0, num_cores, size)]
    columns = {
        size: roofline.compute_s(graph, [_describe_group(size, serial_share)]) for size in sizes
    }
    compute_s = np.concatenate([columns[size] for size, _ in groups], axis=1)
    parts = np.arange(0, num_cores, sizes[-1])  # the smallest groups, which no device divides
    handover_s = _HANDOVER_S * (1 - np.eye(len(groups)))
    host = roofline.cost_model(graph, ("cpu",))
    costs = host._replace(
        compute_s=compute_s.astype(np.float32),
        transfer_latency_s=handover_s.astype(np.float32),
        transfer_s_per_byte=np.zeros((len(groups), len(groups)), np.float32),
        capacity_bytes=np.full(len(groups), np.inf, np.float32),
        accelerator=np.full(len(groups), -1, np.int32),
        resources=np.stack([(parts >= start) & (parts < start + size) for size, start in groups]),
    )
    return tuple(f"cores_{start}_{start + size - 1}" for size, start in groups), costs


def _describe_group(num_cores: int, serial_share: float) -> DeviceSpec:
    speedup = 1 / (serial_share + (1 - serial_share) / num_cores)
    return roofline.SPECS["cpu"]._replace(
        flop_per_s={
            op_class: share * _FLOP_PER_S * speedup for op_class, share in _SHARES_OF_PEAK.items()
        },
        bytes_per_s=num_cores * _BYTES_PER_S,
        launch_s=_LAUNCH_S + _SYNCHRONISE_S * math.log2(num_cores),
    )


def make_rows(results: Iterable[Result]) -> list[list[str]]:
    """Returns a row of `HEADER` for each result."""
    return [
        [
            *(result.graph, str(result.num_cores), f"{result.serial_share:g}"),
            *(f"{1e3 * seconds:.3f}" for seconds in result[3:5]),
            f"{result.placement_s / result.all_cores_s:.3f}",
            f"{result.bound_s / result.all_cores_s:.3f}",
        ]
        for result in results
    ]


if __name__ == "__main__":
    print(json.dumps(measure()))
