"""Correction of profiled costs by measured latencies of a few placements.

A profile times operations alone. It misses costs that appear only in a placement, such as starting
one more submodel or sharing the memory's bandwidth. A correction multiplies the costs by factors:
one for each device, one for each kind of operation on each device, one for the transfers and one
for lost fusions. They minimise

    sum_m (log(predicted_m / measured_m) / error)^2 + sum_j (log(factor_j) / deviation_j)^2

over the measured placements m. The second sum keeps factors that hardly change these predictions
near 1. Predictions are the simulator's, for any objective.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from placement.types import Array, CostModel, OpGraph

NUM_KINDS = 4  # of operations
_NUM_SHARED = 2  # factors of all devices: of transfers and of lost fusions
_DEVIATIONS = 0.5, 0.2, 1.0  # of the logarithms of the factors of devices, kinds, and shared ones
_ERROR = 0.02  # relative error of a prediction with the right factors


def num_factors(num_devices: int) -> int:
    """Returns the number of factors of a correction."""
    return num_devices * (1 + NUM_KINDS) + _NUM_SHARED


class Fit(NamedTuple):
    """Factors fitted to measured placements, and mean relative errors of predictions."""

    factors: list[float]  # as many as `num_factors`
    error_before: float  # of the profile's predictions, for the judged placements
    error_after: float  # of predictions that are fitted to the other placements (linearised)


def fit(
    predict: Callable[[np.ndarray], np.ndarray],
    measured_s: np.ndarray,
    num_devices: int,
    is_judged: np.ndarray,
) -> Fit:
    """Fits the factors of D devices to measured placements, float [M].

    `predict` maps factors to the predicted seconds float [M] of these placements; the errors are
    those of the judged ones, bool [M].
    """
    deviations = np.repeat(_DEVIATIONS, (num_devices, num_devices * NUM_KINDS, _NUM_SHARED))

    def residuals(factors: np.ndarray) -> np.ndarray:
        ratio = np.asarray(predict(factors), np.float64) / measured_s
        return np.append(np.log(ratio) / _ERROR, np.log(factors) / deviations)

    from scipy import optimize  # takes 0.3 s, of which most runs have no need

    start = np.ones(len(deviations))
    # Steps of 2% for derivatives, because predictions are float32.
    result = optimize.least_squares(
        residuals, start, bounds=(1e-3, 1e3), diff_step=0.02, ftol=1e-4, max_nfev=10
    )
    # A measurement pulls its own prediction by its leverage, the diagonal of the hat matrix.
    leverage = np.square(np.linalg.qr(result.jac)[0]).sum(axis=1)
    left_out = result.fun / np.maximum(1 - leverage, 1e-6)
    log_errors = _ERROR * np.stack([residuals(start), left_out])[:, : len(measured_s)][:, is_judged]
    return Fit(result.x.tolist(), *np.abs(np.expm1(log_errors)).mean(axis=1).tolist())


def apply(graph: OpGraph, costs: CostModel, factors: Iterable[float]) -> CostModel:
    """Returns profiled costs, multiplied by the factors of `fit`."""
    *compute, transfer, fusion = factors
    device_factors, kind_factors = np.split(np.reshape(compute, (1 + NUM_KINDS, -1)), [1])
    op_factors = device_factors * kind_factors[classify_ops(graph, costs)]

    def scale(seconds: Array, factor: float | np.ndarray) -> np.ndarray:
        return (np.asarray(seconds, np.float64) * factor).astype(np.float32)

    segment_costs = costs.segment_costs
    if segment_costs is not None:
        segment_costs = segment_costs._replace(
            fusion_loss_s=scale(segment_costs.fusion_loss_s, fusion),
            launch_s=scale(segment_costs.launch_s, fusion),
        )
    return costs._replace(
        compute_s=scale(costs.compute_s, op_factors),
        transfer_latency_s=scale(costs.transfer_latency_s, transfer),
        transfer_s_per_byte=scale(costs.transfer_s_per_byte, transfer),
        transfer_fixed_s=scale(costs.transfer_fixed_s, transfer),
        fusion_loss_s=scale(costs.fusion_loss_s, fusion),
        segment_costs=segment_costs,
    )


def classify_ops(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """Returns the kind of each operation, int [N]; each kind has about the same share of the time.

    A kind contains operations of one type that take about equally long, or operations of several
    types that take little time together. An operation's time is its mean over the devices that
    support it.
    """
    compute_s = np.asarray(costs.compute_s, np.float64)
    is_finite = np.isfinite(compute_s)
    mean_s = np.where(is_finite, compute_s, 0.0).sum(axis=1) / np.maximum(is_finite.sum(axis=1), 1)
    order = np.lexsort((mean_s, graph.op_types))
    midpoints_s = np.cumsum(mean_s[order]) - mean_s[order] / 2
    kinds = np.zeros(graph.num_ops, int)
    total_s = max(mean_s.sum(), np.finfo(float).tiny)
    kinds[order] = np.minimum(NUM_KINDS * midpoints_s / total_s, NUM_KINDS - 1)
    return kinds
