"""Problems on described devices, and separate processes, for the benchmarks."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from placement.costs import roofline
from placement.pipeline import loading
from placement.problem import Problem

# Consecutive cases place the same graph on other devices.
_build_network = functools.lru_cache(maxsize=1)(loading.build_graph_network)


def describe_problem(graph: str, devices: str) -> Problem:
    """Builds the `makespan` problem of a network of the zoo or a synthetic graph, by name.

    `devices` are described ones, such as 'roofline:cpu,gpu'.
    """
    network, names = _build_network(graph), roofline.parse_devices(devices)
    costs = roofline.cost_model(network.graph, names)
    return loading.make_problem(network, costs, names, "makespan")


def run_module(module: str, argument: str, environment: Mapping[str, str] | None = None) -> Any:
    """Runs a module in a separate process and returns the last line it prints, parsed as JSON.

    `environment` has variables to set in addition to this process's.
    """
    result = subprocess.run(
        [sys.executable, "-m", module, argument],
        env=os.environ | dict(environment or {}),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(result.stdout.splitlines()[-1])
