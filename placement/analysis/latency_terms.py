"""What a placement's latency consists of, under each objective that devices are measured by.

The terms are those of `placement.costs.calibrate`, by which measured latencies correct the costs.
Under `serial` all operations count, under `makespan` those of a longest path of segments, and under
`max_load` those of the busiest device. What is critical depends on the costs, so that terms are
asked for at some.
"""

from collections.abc import Callable

import chex
import numpy as np

from placement.analysis import segments
from placement.costs import calibrate
from placement.costs.calibrate import Terms, TermsAt
from placement.instance import Instance
from placement.simulators import max_load
from placement.types import CostModel


def prepare(problem: Instance, placement: np.ndarray, kind: np.ndarray | None = None) -> TermsAt:
    """Prepares the terms of a placement.

    Args:
      problem: N operations, of an objective of `TERMS`, at costs as profiled.
      placement: int32 [N].
      kind: int [N], where they are to tell kinds of operations apart (`calibrate.kinds`).
    """
    chex.assert_shape(placement, (problem.graph.num_ops,))
    chex.assert_type(placement, int)
    return TERMS[problem.objective](problem, placement, kind)


def _serial(problem: Instance, placement: np.ndarray, kind: np.ndarray | None) -> TermsAt:
    fixed = calibrate.serial_terms(problem.graph, problem.costs, placement, kind)
    return lambda _: fixed


def _makespan(problem: Instance, placement: np.ndarray, kind: np.ndarray | None) -> TermsAt:
    """Of the segments that run, which are those cut at costs as profiled."""
    cut = segments.cut(problem, placement)

    def terms(costs: CostModel) -> Terms:
        schedule = segments.schedule(problem._replace(costs=costs), placement, cut)
        return segments.terms(problem, placement, cut, schedule, kind)

    return terms


def _max_load(problem: Instance, placement: np.ndarray, kind: np.ndarray | None) -> TermsAt:
    """Of devices without a host: a tensor that crosses counts with its costliest link."""
    graph, num_devices = problem.graph, len(problem.devices)
    chosen_s = np.asarray(problem.costs.compute_s, np.float64)[range(graph.num_ops), placement]
    source, reader = placement[graph.senders], placement[graph.receivers]
    apart = np.flatnonzero(source != reader)
    tensor = graph.tensors[apart].astype(np.int64)
    # An edge of each tensor that is sent, and of each that a device receives.
    sent = apart[np.unique(tensor, return_index=True)[1]]
    received = apart[np.unique(tensor * num_devices + reader[apart], return_index=True)[1]]

    def terms(costs: CostModel) -> Terms:
        at_costs = problem._replace(costs=costs)
        loads = max_load.loads(at_costs.load_tables, placement[:, None])
        busiest = int(np.argmax(np.asarray(loads)[:, 0]))
        here = placement == busiest
        transfer_s = at_costs.edge_transfer_s
        out = sent[source[sent] == busiest]
        into = received[reader[received] == busiest]
        to = transfer_s[out, busiest].argmax(axis=1)
        by = transfer_s[into, :, busiest].argmax(axis=1)
        pairs = (
            np.concatenate([np.full(len(out), busiest), by]),
            np.concatenate([to, np.full(len(into), busiest)]),
        )
        transfers = np.zeros((num_devices,) * 2)
        num_bytes = np.zeros_like(transfers)
        np.add.at(transfers, pairs, 1)
        np.add.at(num_bytes, pairs, graph.edge_bytes[np.concatenate([out, into])])
        of_kind = None if kind is None else kind[here]
        compute_s = calibrate.by_device(chosen_s[here], placement[here], num_devices, of_kind)
        return Terms(compute_s, transfers, num_bytes, lost_s=0.0, lost=0)

    return terms


TERMS: dict[str, Callable[[Instance, np.ndarray, np.ndarray | None], TermsAt]] = {
    "serial": _serial,
    "makespan": _makespan,
    "max_load": _max_load,
}
