"""Seconds until the first step of learned methods, by graph: `experiments.benchmarks compile`.

Each method places a list of graphs one after another in a separate process, without JAX's
persistent cache. The second graph is in the bucket of the first one
(`placement.graphs.batching.bucket`), the others are in different buckets. A row has

- seconds: from the problem to the beginning of the first step,
- processor: the same in seconds of the processor, which other processes hardly change,
- tracing, lowering, XLA: parts of the seconds, as JAX reports them,
- programs: the number of compiled programs.

Methods given as arguments replace the default list.
"""

import json
import sys
import time
from collections import defaultdict

import jax
from rich.console import Console

from experiments.benchmarks import shared
from placement.methods import learned
from placement.reporting.tables import grids
from placement.solvers.limits import SearchLimits

_METHODS = ("hsdag", "scheduler", "placeto", "hierarchical", "colocrl")
_LAYERED = "synthetic:family=layered,ops=300,seed="
_GRAPHS = (f"{_LAYERED}0", f"{_LAYERED}1", "inception_v3", "resnet50", "bert_base")
_DEVICES = "roofline:cpu,gpu,gpu"
_EVENTS = {
    "tracing": "/jax/core/compile/jaxpr_trace_duration",
    "lowering": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "XLA": "/jax/core/compile/backend_compile_duration",
}


def run(*methods: str) -> None:
    """Prints the seconds of each method on each graph."""
    for method in methods:
        learned.make(method, 3)
    environment = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    columns = "operations", "nodes x edges", "seconds", "processor", *_EVENTS, "programs"
    table = grids.new_table("until the first step", ("method", "graph"), columns)
    for method in methods or _METHODS:
        for row in shared.run_module("experiments.benchmarks.compilation", method, environment):
            table.add_row(method, *row)
    Console(width=130).print(table)


def measure_graphs(method: str) -> list[list[str]]:
    """Compiles the steps for each graph and returns its row: the graph, then the columns."""
    durations_s: defaultdict[str, list[float]] = defaultdict(list)

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        durations_s[event].append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    rows = []
    for graph in _GRAPHS:
        problem = shared.describe_problem(graph, _DEVICES)
        durations_s.clear()
        start_s, processor_start_s = time.perf_counter(), time.process_time()
        search = learned.Search.prepare(method, problem)
        limits = SearchLimits(0.0, sys.maxsize)  # no step: only compiles
        search.run(search.start(0, limits), limits)
        times_s = [time.perf_counter() - start_s, time.process_time() - processor_start_s]
        times_s += [sum(durations_s[event]) for event in _EVENTS.values()]
        padded = search.policy_input.graph
        sizes = f"{len(padded.nodes['mask'])} x {len(padded.senders)}"
        texts = [f"{time_s:.2f}" for time_s in times_s]
        programs = str(len(durations_s[_EVENTS["XLA"]]))
        rows.append([graph, str(problem.graph.num_ops), sizes, *texts, programs])
    return rows


if __name__ == "__main__":
    print(json.dumps(measure_graphs(sys.argv[1])))
