"""Details of placements to draw, without a run: of tiny graphs and of a large one."""

import dataclasses

import numpy as np

from placement.graphs import coarsen, dag
from placement.reporting.details import Details, Timeline
from placement.types import OpGraph, Span
from placement.zoo import synthetic
from tests import helpers


def diamond(*, measured: bool = True) -> Details:
    """op1 on the second device, and op2 on the first; four operations of 1 to 4 ms."""
    graph = helpers.diamond()
    spans = (
        Span(0, (0,), 0.0, 1e-3),
        Span(1, (1,), 1.5e-3, 3.5e-3),
        Span(0, (2,), 1e-3, 4e-3),
        Span(0, (3,), 4e-3, 8e-3),
    )
    later = tuple(span._replace(finish_s=1.1 * span.finish_s) for span in spans)
    seconds = np.array([[1e-3, 2e-3], [4e-3, 2e-3], [3e-3, np.inf], [4e-3, 8e-3]])
    return Details(
        method="lns",
        objective="makespan",
        devices=("CPU [f32, 1 thread, host]", "GPU.0 [f16]"),
        graph=graph,
        coarse=graph,
        assignment=np.arange(4, dtype=np.int32),
        placement=np.array([0, 1, 0, 0], np.int32),
        compute_s=seconds,
        memory_bytes=np.array([10.0, 20.0, 30.0, 40.0]),
        predicted=Timeline(spans, "simulated"),
        measured=Timeline(later, "measured, the median of 9 inferences") if measured else None,
    )


def large(num_ops: int = 1_000, num_devices: int = 3) -> Details:
    """A layered graph, its topological order in runs of 25 operations on one device each."""
    graph = synthetic.build(f"synthetic:family=layered,ops={num_ops},seed=0")
    coarsening = coarsen.coarsen(graph)
    return placed(graph, coarsening, num_devices)


def placed(graph: OpGraph, coarsening: coarsen.Coarsening, num_devices: int) -> Details:
    """A placement of a coarsened graph in runs, one operation after another, nothing measured."""
    coarse = dataclasses.replace(coarsening.graph, member_types=())  # which details do not keep
    order = dag.topological_order(coarse)
    placement = np.empty(coarse.num_ops, np.int32)
    placement[order] = np.arange(coarse.num_ops) // 25 % num_devices
    rng = np.random.default_rng(0)
    seconds = rng.uniform(1e-5, 1e-3, (graph.num_ops, num_devices))
    whole = np.zeros((coarse.num_ops, num_devices))
    np.add.at(whole, coarsening.assignment, seconds)
    spans, clock = [], 0.0
    for op in order.tolist():
        finish = clock + whole[op, placement[op]]
        spans.append(Span(int(placement[op]), (op,), clock, finish))
        clock = finish
    return Details(
        method="heft",
        objective="makespan",
        devices=tuple(f"GPU.{i} [described]" for i in range(num_devices)),
        graph=graph,
        coarse=coarse,
        assignment=coarsening.assignment,
        placement=placement,
        compute_s=seconds,
        memory_bytes=rng.uniform(1e3, 1e6, graph.num_ops),
        predicted=Timeline(tuple(spans), "simulated"),
        measured=None,
    )
