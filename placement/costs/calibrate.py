"""Corrects profiled costs by measured latencies of placements.

A profile misses what only shows where a model is cut: what one more submodel costs to start, what a
tensor's change of layout and precision costs, what a lost fusion costs. The serial objective is
linear in coefficients of these terms, so that measured placements correct them by least squares:

    latency(p) = sum_d x_d * compute_s on d
               + sum_{s != d} latency_s[s, d] * transfers s -> d + s_per_byte[s, d] * bytes s -> d
               + z * (fusion_loss_s of the lost fusions) + w * (number of lost fusions)

Placements tell some of these apart poorly, such as the two directions of a transfer. So each
coefficient c is drawn towards the profile's value, the prior, with a standard deviation of its own
as large as the prior is unsure; with the latencies' relative error as the unit, the sum of

    sum_m ((predicted / measured - 1) / ERROR)^2 + sum_j ((c_j - prior_j) / deviation_j)^2

is, up to constants, the negative logarithm of a posterior. All coefficients are at least zero, so
its minimum is a non-negative least squares problem.

Where devices overlap, the latency is the sum of these terms along a longest path of segments
(`placement.simulators.segments`), which depends on the coefficients: it is fitted in rounds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import numpy as np
from scipy.optimize import nnls

from placement.types import CostModel, OpGraph

ERROR = 0.02  # of a prediction that has everything right but what the model cannot express
# Standard deviations: of compute and lost fusions relative to the profile; of transfers absolute,
# since the micro-benchmark crosses other tensors between other operations.
_COMPUTE = 0.1
_CUT = 1.0
_CUT_S = 20e-6
_LATENCY_S = 20e-6
_S_PER_BYTE = 0.2e-9


class Terms(NamedTuple):
    """What the coefficients of a placement's latency are multiplied with."""

    compute_s: np.ndarray  # float64 [D]: on each device
    transfers: np.ndarray  # float64 [D, D]: tensors handed over
    bytes: np.ndarray  # float64 [D, D]: of these
    lost_s: float  # what lost fusions cost
    lost: int  # how many were


# The terms of placements, at the profiled costs, given the costs as calibrated so far, where it
# depends on them what a latency consists of.
TermsOf = Callable[[CostModel], Sequence[Terms]]


class Calibration(NamedTuple):
    """The coefficients; devices in the order of the placement's indices."""

    compute: np.ndarray  # float64 [D]: factors of compute_s
    latency_s: np.ndarray  # float64 [D, D], zero diagonal
    s_per_byte: np.ndarray  # float64 [D, D], zero diagonal
    cut: float  # factor of fusion_loss_s
    fusion_loss_s: float  # what every lost fusion costs beside


def fit(
    costs: CostModel,
    terms: TermsOf,
    latency_s: np.ndarray,
    *,
    rounds: int = 1,
) -> Calibration:
    """Returns the calibration that explains measured latencies best.

    Args:
      costs: as profiled.
      terms: of M placements.
      latency_s: float [M], measured.
      rounds: how often to fit, each time with terms made anew.
    """
    chex.assert_rank(latency_s, 1)
    chex.assert_type(latency_s, float)
    apart = ~np.eye(np.asarray(costs.compute_s).shape[1], dtype=bool)
    prior, deviation = _prior(costs, apart)
    calibration = _unflatten(prior, apart)
    for _ in range(rounds):
        rows = [_flatten(row, apart) for row in terms(apply(costs, calibration))]
        matrix = np.reshape(rows, (len(latency_s), len(prior))) / (latency_s[:, None] * ERROR)
        # Every coefficient in units of its deviation, so that the prior's rows are the identity.
        matrix = np.concatenate([matrix * deviation, np.eye(len(prior))])
        target = np.concatenate([np.full(len(rows), 1 / ERROR), prior / deviation])
        calibration = _unflatten(nnls(matrix, target)[0] * deviation, apart)
    return calibration


def apply(costs: CostModel, calibration: Calibration) -> CostModel:
    """Returns the costs as calibrated."""
    fusion_loss_s = np.asarray(costs.fusion_loss_s, np.float64)
    fusion_loss_s = np.where(
        fusion_loss_s > 0, calibration.cut * fusion_loss_s + calibration.fusion_loss_s, 0.0
    )
    return costs._replace(
        compute_s=(np.asarray(costs.compute_s) * calibration.compute).astype(np.float32),
        transfer_latency_s=calibration.latency_s.astype(np.float32),
        transfer_s_per_byte=calibration.s_per_byte.astype(np.float32),
        fusion_loss_s=fusion_loss_s.astype(np.float32),
    )


def to_json(calibration: Calibration) -> dict[str, Any]:
    """Returns JSON-able data."""
    return {name: np.asarray(value).tolist() for name, value in calibration._asdict().items()}


def from_json(data: dict[str, Any]) -> Calibration:
    """Reads what `to_json` wrote."""
    arrays = ("compute", "latency_s", "s_per_byte")
    return Calibration(
        **{name: np.array(data[name]) for name in arrays},
        cut=data["cut"],
        fusion_loss_s=data["fusion_loss_s"],
    )


def _prior(costs: CostModel, apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the prior and the deviation of the coefficients, flat."""
    num_devices, num_pairs = len(apart), int(apart.sum())
    prior = [
        np.ones(num_devices),
        np.asarray(costs.transfer_latency_s, np.float64)[apart],
        np.asarray(costs.transfer_s_per_byte, np.float64)[apart],
        np.array([1.0, 0.0]),
    ]
    deviation = [
        np.full(num_devices, _COMPUTE),
        np.full(num_pairs, _LATENCY_S),
        np.full(num_pairs, _S_PER_BYTE),
        np.array([_CUT, _CUT_S]),
    ]
    return np.concatenate(prior), np.concatenate(deviation)


def _unflatten(flat: np.ndarray, apart: np.ndarray) -> Calibration:
    num_devices, num_pairs = len(apart), int(apart.sum())
    latency_s, s_per_byte = np.zeros(apart.shape), np.zeros(apart.shape)
    compute, latency_s[apart], s_per_byte[apart], cut = np.split(
        flat, np.cumsum([num_devices, num_pairs, num_pairs])
    )
    return Calibration(compute, latency_s, s_per_byte, float(cut[0]), float(cut[1]))


def serial_terms(graph: OpGraph, costs: CostModel, placement: np.ndarray) -> Terms:
    """Computes the terms of the `serial` objective; a placement is int32 [N]."""
    chex.assert_shape(placement, (graph.num_ops,))
    chex.assert_type(placement, int)
    compute_s, fusion_loss_s = (
        np.asarray(costs.compute_s, np.float64),
        np.asarray(costs.fusion_loss_s, np.float64),
    )
    num_devices = compute_s.shape[1]
    chosen_s = compute_s[np.arange(graph.num_ops), placement]
    source, reader = placement[graph.senders], placement[graph.receivers]
    # A tensor crosses to a device once, however many of its operations read it.
    transfer = np.flatnonzero(source != reader)
    pair = graph.tensors[transfer].astype(np.int64) * num_devices + reader[transfer]
    transfer = transfer[np.unique(pair, return_index=True)[1]]
    count, bytes_ = np.zeros((num_devices,) * 2), np.zeros((num_devices,) * 2)
    np.add.at(count, (source[transfer], reader[transfer]), 1)
    np.add.at(bytes_, (source[transfer], reader[transfer]), graph.edge_bytes[transfer])
    lost = fusion_loss_s[source != reader]
    return Terms(
        compute_s=np.bincount(placement, chosen_s, num_devices),
        transfers=count,
        bytes=bytes_,
        lost_s=float(lost.sum()),
        lost=int(np.count_nonzero(lost)),
    )


def _flatten(terms: Terms, apart: np.ndarray) -> np.ndarray:
    between = [terms.transfers[apart], terms.bytes[apart]]
    return np.concatenate([terms.compute_s, *between, [terms.lost_s, terms.lost]])
