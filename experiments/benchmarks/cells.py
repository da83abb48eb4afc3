"""The loop that the benchmarks of solution quality share: many graphs on described devices.

A benchmark lists its cases, a cell is measured for each, and tables summarise the cells.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from placement.costs import roofline
from placement.instance import Instance
from placement.pipeline import loading
from placement.pipeline.console.compilation_cache import limit_compiled
from placement.zoo import families

# No configuration trains a policy on the last of these, nor on any set of four devices.
DEVICE_SETS = "roofline:cpu,gpu,gpu", "roofline:cpu,igpu,npu", "roofline:cpu,igpu,gpu,npu"
NUM_MEMBERS = 6  # of each family


class Case(NamedTuple):
    """A graph on a set of described devices."""

    family: str
    graph: str
    devices: str


class Cell(NamedTuple):
    """The results for one case."""

    family: str
    graph: str
    devices: str
    num_ops: int  # after coarsening
    values: dict[str, float]  # by name; seconds where the name ends in _s

    @property
    def device_kinds(self) -> str:
        """The devices without 'roofline:'."""
        return self.devices.partition(":")[2]


def family_cases(names: Iterable[str]) -> Iterator[Case]:
    """Yields the first members of each family on every set of devices."""
    for family in names:
        for seed in range(NUM_MEMBERS):
            for devices in DEVICE_SETS:
                yield Case(family, families.draw(family, seed), devices)


def describe_problem(
    graph: str, devices: str, *, objective: str = "makespan", constants: bool = False
) -> Instance:
    """Builds the problem of a graph on described devices.

    Args:
      graph: a network of the zoo or a synthetic graph, by name.
      devices: a list such as 'roofline:cpu,gpu'.
      objective: of `placement.simulators`.
      constants: whether the graph contains its constants.
    """
    network = _build_network(graph, constants)
    names = roofline.parse_devices(devices)
    costs = roofline.cost_model(network.graph, names)
    return loading.make_problem(network, costs, names, objective)


@functools.lru_cache(maxsize=1)  # consecutive cases place the same graph on other devices
def _build_network(graph: str, constants: bool) -> loading.Network:
    return loading.build_graph_network(graph, constants=constants)


def measure_cells(
    cases: Iterable[Case], measure: Callable[[Instance], dict[str, float]]
) -> list[Cell]:
    """Measures every case and prints its values to stderr as soon as they are known."""
    cells, cases = [], list(cases)
    for number, case in enumerate(cases, start=1):
        problem = describe_problem(case.graph, case.devices)
        values = measure(problem)
        cells.append(Cell(*case, problem.graph.num_ops, values))
        limit_compiled()
        text = ", ".join(f"{name}={value:.4g}" for name, value in values.items())
        print(
            f"{number} of {len(cases)}: {case.graph}, {case.devices}: {text}",
            file=sys.stderr,
            flush=True,
        )
    return cells
