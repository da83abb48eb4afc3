"""The terms that a placement's latency is a sum of, for each objective that devices measure.

`placement.costs.calibrate` defines the terms; it fits them to measured latencies to correct costs.
Under `serial` every operation counts, under `makespan` the operations on a longest path of
segments, and under `max_load` those of the busiest device. The longest path depends on the costs,
so `prepare` returns a function of the costs.
"""

from collections.abc import Callable

import chex
import numpy as np

from placement.analysis import segments
from placement.costs import calibrate
from placement.costs.calibrate import ComputeTerms, Terms
from placement.instance import Instance
from placement.simulators import max_load
from placement.types import CostModel


def prepare(
    problem: Instance, placement: np.ndarray, kind: np.ndarray | None = None
) -> ComputeTerms:
    """Prepares the terms of a placement.

    Args:
      problem: N operations with profiled costs and an objective of `TERMS`.
      placement: int32 [N].
      kind: int [N]: the kind of each operation (`calibrate.classify_ops`), for separate terms;
        or None.
    """
    chex.assert_shape(placement, (problem.graph.num_ops,))
    chex.assert_type(placement, int)
    return TERMS[problem.objective](problem, placement, kind)


def _serial(problem: Instance, placement: np.ndarray, kind: np.ndarray | None) -> ComputeTerms:
    fixed = calibrate.serial_terms(problem.graph, problem.costs, placement, kind)
    return lambda _: fixed


def _makespan(problem: Instance, placement: np.ndarray, kind: np.ndarray | None) -> ComputeTerms:
    """Prepares the terms of the segments that run: those cut at the profiled costs."""
    cut = segments.cut(problem, placement)

    def terms(costs: CostModel) -> Terms:
        schedule = segments.schedule(problem._replace(costs=costs), placement, cut)
        return segments.sum_terms(problem, placement, cut, schedule, kind)

    return terms


def _max_load(problem: Instance, placement: np.ndarray, kind: np.ndarray | None) -> ComputeTerms:
    """Prepares the terms of the busiest device; a transfer counts at its costliest link."""
    graph, num_devices = problem.graph, len(problem.devices)
    op_compute_s = np.asarray(problem.costs.compute_s, np.float64)[range(graph.num_ops), placement]
    source, reader = placement[graph.senders], placement[graph.receivers]
    cut_edges = np.flatnonzero(source != reader)
    tensor = graph.tensors[cut_edges].astype(np.int64)
    # One edge for each tensor that is sent, and one for each (tensor, receiving device).
    sent = cut_edges[np.unique(tensor, return_index=True)[1]]
    received = cut_edges[np.unique(tensor * num_devices + reader[cut_edges], return_index=True)[1]]

    def terms(costs: CostModel) -> Terms:
        repriced = problem._replace(costs=costs)
        loads = max_load.compute_loads(repriced.load_tables, placement[:, None])
        busiest = int(np.argmax(np.asarray(loads)[:, 0]))
        is_busiest = placement == busiest
        transfer_s = repriced.edge_transfer_s
        outgoing = sent[source[sent] == busiest]
        incoming = received[reader[received] == busiest]
        destinations = transfer_s[outgoing, busiest].argmax(axis=1)
        origins = transfer_s[incoming, :, busiest].argmax(axis=1)
        pairs = (
            np.concatenate([np.full(len(outgoing), busiest), origins]),
            np.concatenate([destinations, np.full(len(incoming), busiest)]),
        )
        transfers = np.zeros((num_devices,) * 2)
        num_bytes = np.zeros_like(transfers)
        np.add.at(transfers, pairs, 1)
        np.add.at(num_bytes, pairs, graph.edge_bytes[np.concatenate([outgoing, incoming])])
        busiest_kind = None if kind is None else kind[is_busiest]
        compute_s = calibrate.sum_by_device(
            op_compute_s[is_busiest], placement[is_busiest], num_devices, busiest_kind
        )
        return Terms(compute_s, transfers, num_bytes, fusion_loss_s=0.0, num_lost_fusions=0)

    return terms


TERMS: dict[str, Callable[[Instance, np.ndarray, np.ndarray | None], ComputeTerms]] = {
    "serial": _serial,
    "makespan": _makespan,
    "max_load": _max_load,
}
