"""Correction of profiled costs by measured latencies of a few placements.

A profile times operations alone. It misses costs that appear only in a placement, such as starting
one more submodel or sharing the memory's bandwidth. A correction multiplies the costs by factors
exp(x_j): one for each device, one for each kind of operation on each device, one for the transfers
and one for lost fusions. A last x_j adds the same time to every transfer. x minimises

    sum_m ((log predicted_m(x) - log measured_m) / error)^2 + sum_j (x_j / deviation_j)^2

over the measured placements m. The second sum keeps factors that hardly change these predictions
near 1. Predictions are the simulator's, for any objective. They are almost linear in the logarithms
of the costs, so that a few steps of Gauss and Newton suffice, with derivatives by differences.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np

from placement.types import CostModel, OpGraph

NUM_KINDS = 4  # of operations
_ERROR = 0.02  # relative error of a prediction with the right factors
_DEVIATIONS = 0.5, 0.2, 1.0  # of the factors of devices, kinds and cuts
_TRANSFER_S = 20e-6  # times exp(x) - 1: added to the latency of every transfer
_NUM_CUT_FACTORS = 3  # of transfers, of their added time and of lost fusions
_DIFFERENCE = 0.02  # of x, for derivatives
_STEPS = 6


def num_factors(num_devices: int) -> int:
    """Returns the number J of factors."""
    return num_devices * (1 + NUM_KINDS) + _NUM_CUT_FACTORS


class Fit(NamedTuple):
    """Factors fitted to M measured placements."""

    factors: np.ndarray  # float64 [J]: the logarithms x
    errors_before: np.ndarray  # float64 [M]: relative errors of the profile's predictions
    # float64 [M]: of predictions that are fitted to the other placements (linearised)
    errors_after: np.ndarray


def fit(
    predict: Callable[[np.ndarray], np.ndarray], measured_s: np.ndarray, num_devices: int
) -> Fit:
    """Fits the factors.

    Args:
      predict: maps factors [J] to the predicted seconds float [M] of the measured placements.
      measured_s: float [M].
      num_devices: D.
    """
    chex.assert_rank(measured_s, 1)
    chex.assert_type(measured_s, float)
    deviations = np.repeat(_DEVIATIONS, (num_devices, num_devices * NUM_KINDS, _NUM_CUT_FACTORS))
    count = len(measured_s)

    def residuals(factors: np.ndarray) -> np.ndarray:
        ratio = np.asarray(predict(factors), np.float64) / measured_s
        return np.append(np.log(ratio) / _ERROR, factors / deviations)

    factors = np.zeros(len(deviations))
    profiled = current = residuals(factors)
    for _ in range(_STEPS):
        shifted = [residuals(factors + shift) for shift in _DIFFERENCE * np.eye(len(factors))]
        jacobian = (np.array(shifted) - current).T / _DIFFERENCE
        step = np.linalg.lstsq(jacobian, -current)[0]
        # A longest path may change within a step, which can then be too long.
        for length in (1.0, 0.5, 0.25, 0.125):
            candidate = residuals(factors + length * step)
            if np.square(candidate).sum() < np.square(current).sum():
                factors, current = factors + length * step, candidate
                break
        else:
            break
    # A measurement pulls its own prediction by its leverage, the diagonal of the hat matrix.
    leverage = np.square(np.linalg.qr(jacobian)[0][:count]).sum(axis=1)
    left_out = current[:count] / np.maximum(1 - leverage, 1e-6)
    errors = (np.abs(np.expm1(r * _ERROR)) for r in (profiled[:count], left_out))
    return Fit(factors, *errors)


def apply(costs: CostModel, kinds: np.ndarray, factors: np.ndarray) -> CostModel:
    """Returns the corrected costs.

    Args:
      costs: the profiled costs of N operations.
      kinds: int [N], see `classify_ops`.
      factors: float [J], the logarithms of `fit`.
    """
    compute_s = np.asarray(costs.compute_s, np.float64)
    num_devices = compute_s.shape[1]
    devices, device_kinds, cuts = np.split(factors, [num_devices, num_devices * (NUM_KINDS + 1)])
    transfer, added, fusion = np.exp(cuts)
    op_factors = np.exp(devices[:, None] + device_kinds.reshape(num_devices, NUM_KINDS)).T[kinds]
    latency_s = transfer * np.asarray(costs.transfer_latency_s) + _TRANSFER_S * (added - 1)
    np.fill_diagonal(latency_s, 0.0)
    segment_costs = costs.segment_costs
    if segment_costs is not None:
        segment_costs = segment_costs._replace(
            fusion_loss_s=(fusion * np.asarray(segment_costs.fusion_loss_s)).astype(np.float32),
            launch_s=(fusion * np.asarray(segment_costs.launch_s)).astype(np.float32),
        )
    return costs._replace(
        compute_s=(compute_s * op_factors).astype(np.float32),
        transfer_latency_s=np.maximum(latency_s, 0.0).astype(np.float32),
        transfer_s_per_byte=(transfer * np.asarray(costs.transfer_s_per_byte)).astype(np.float32),
        transfer_fixed_s=(transfer * np.asarray(costs.transfer_fixed_s)).astype(np.float32),
        fusion_loss_s=(fusion * np.asarray(costs.fusion_loss_s)).astype(np.float32),
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
