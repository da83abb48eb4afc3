"""Calibration of profiled costs by measured latencies of placements.

A profile misses costs that appear only at cuts of a model: starting one more submodel, changing a
tensor's layout and precision, losing a fusion. The serial objective is linear in the coefficients
of these terms, so that least squares on measured placements can correct them:

    latency(p) = sum_d sum_k x_dk * compute_s on d of operations of kind k
               + sum_{s != d} latency_s[s, d] * transfers s -> d + s_per_byte[s, d] * bytes s -> d
               + z * (fusion_loss_s of the lost fusions) + w * (number of lost fusions)

Placements distinguish some coefficients poorly, such as the two directions of a transfer. So each
coefficient c has a Gaussian prior around the profile's value. The factors x_dk of a device have a
common part in it, which stands for a clock or a precision, and each has a part of its own. With the
covariance S of the prior, the sum of

    sum_m ((predicted / measured - 1) / error)^2 + (c - prior)^T S^-1 (c - prior)

is, up to constants, twice the negative logarithm of the posterior. All coefficients are at least
zero, so that its minimum is a non-negative least squares problem. The posterior is approximated by
the Gaussian around this minimum that it would be without the limit (Bayesian linear regression).

If devices overlap, the latency is the sum of these terms along a longest path of segments
(`placement.analysis.segments`). The path depends on the coefficients, so the fit is repeated.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import numpy as np
from scipy.optimize import nnls

from placement.types import Array, CostModel, OpGraph

# The relative error of a prediction with the right coefficients: what the model cannot express.
MODEL_ERROR = 0.02
_ERROR_WEIGHT = 4  # measurements that `MODEL_ERROR` counts as if the error is estimated
NUM_KINDS = 6  # of operations
_NUM_FOLDS = 5  # of the cross-validation
# Standard deviations of the prior. Those of compute and lost fusions are relative to the profile.
# Those of transfers are absolute, because the micro-benchmark transfers other tensors between other
# operations.
_DEVICE_DEVIATION = 1.0  # of all operations of a device together
_KIND_DEVIATION = 0.4  # of one kind of operation, in addition
_CUT_DEVIATION = 1.0
_CUT_DEVIATION_S = 20e-6
_LATENCY_DEVIATION_S = 20e-6
_DEVIATION_S_PER_BYTE = 0.2e-9


class Terms(NamedTuple):
    """The quantities of a placement that the coefficients of its latency are multiplied with.

    The fields correspond to those of `Calibration`, in the same order.
    """

    # float64 [D], or [D, K] for each kind: compute seconds on each device. They include the
    # slowdown of operations, and of lost fusions, while other devices compute.
    compute_s: np.ndarray
    transfers: np.ndarray  # float64 [D, D]: number of tensors handed over
    transfer_bytes: np.ndarray  # float64 [D, D]: total bytes of these tensors
    fusion_loss_s: float  # total cost of the lost fusions, and of `CostModel.transfer_fixed_s`
    num_lost_fusions: float  # number of lost fusions


# Computes the terms of a placement at the profiled costs. The argument is the costs as calibrated
# so far, because the operations that make up a latency can depend on them.
ComputeTerms = Callable[[CostModel], Terms]


class Calibration(NamedTuple):
    """The coefficients of a latency; devices are in the order of a placement's indices."""

    compute: np.ndarray  # float64 [D], or [D, K] for each kind: factors of compute_s
    latency_s: np.ndarray  # float64 [D, D], zero diagonal
    s_per_byte: np.ndarray  # float64 [D, D], zero diagonal
    cut: float  # factor of fusion_loss_s and of `CostModel.transfer_fixed_s`
    fusion_loss_s: float  # additional cost of every lost fusion


class Posterior(NamedTuple):
    """The posterior distribution of the J coefficients."""

    mode: Calibration  # the most probable coefficients
    factor: np.ndarray  # float64 [J, J]: a Cholesky factor of their covariance
    error: float  # relative standard deviation of measured latencies from predicted ones

    def draw(self, rng: np.random.Generator) -> Calibration:
        """Draws coefficients, none below zero; `rng` is consumed."""
        mode = _flatten(self.mode)
        sample = mode + self.factor @ rng.standard_normal(len(mode))
        return _unflatten(np.maximum(sample, 0.0), self.mode.compute.shape)


def fit_posterior(
    costs: CostModel,
    terms: Sequence[ComputeTerms],
    latency_s: np.ndarray,
    *,
    rounds: int = 1,
    kind: np.ndarray | None = None,
    error: float | None = MODEL_ERROR,
) -> Posterior:
    """Computes the posterior of the coefficients, given measured latencies.

    Args:
      costs: the profiled costs.
      terms: functions that compute the terms of M placements.
      latency_s: float [M], the measured latencies.
      rounds: the number of fits; each computes the terms at the costs of the previous one.
      kind: int [N], the kind of each operation (`classify_ops`); None if the terms have no kinds.
      error: the relative error of a measured latency from the one that the right coefficients
        predict. None: as large as the residual of each round; `MODEL_ERROR` in the first.
    """
    chex.assert_rank(latency_s, 1)
    chex.assert_type(latency_s, float)
    num_devices = np.asarray(costs.compute_s).shape[1]
    shape = (num_devices,) if kind is None else (num_devices, NUM_KINDS)
    calibration = _profile_calibration(costs, shape)
    prior_mean, covariance = _flatten(calibration), _prior_covariance(shape)
    # Every coefficient is counted in units of its deviation, for numerical accuracy.
    deviation = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviation, deviation)
    prior_rows = np.linalg.inv(np.linalg.cholesky(correlation))
    precision = prior_rows.T @ prior_rows
    spread = MODEL_ERROR if error is None else error
    for _ in range(rounds):
        calibrated = apply_calibration(costs, calibration, kind)
        rows = [_flatten(compute_terms(calibrated)) for compute_terms in terms]
        flat_terms = np.reshape(rows, (len(latency_s), len(prior_mean)))
        relative_terms = flat_terms / latency_s[:, None] * deviation
        matrix = np.concatenate([relative_terms / spread, prior_rows])
        target = np.concatenate(
            [np.full(len(rows), 1 / spread), prior_rows @ (prior_mean / deviation)]
        )
        solution = nnls(matrix, target)[0]
        calibration, precision = _unflatten(solution * deviation, shape), matrix.T @ matrix
        if error is None:
            residual = np.square(relative_terms @ solution - 1).sum()
            spread = float(
                np.sqrt((_ERROR_WEIGHT * MODEL_ERROR**2 + residual) / (_ERROR_WEIGHT + len(rows)))
            )
    factor = deviation[:, None] * np.linalg.cholesky(np.linalg.inv(precision))
    return Posterior(calibration, factor, spread)


def fit_if_better(
    costs: CostModel, terms: Sequence[ComputeTerms], latency_s: np.ndarray, *, rounds: int = 1
) -> Calibration | None:
    """Computes the most probable coefficients; None if those of the profile are as good.

    Every placement is predicted twice: with coefficients fitted to the other folds of the
    placements, and with those of the profile. The calibration is kept if its mean relative error is
    smaller by more than the standard error of the difference. This is the one-standard-error rule
    (Breiman, Friedman, Olshen and Stone 1984, section 3.4.3), in which no calibration is the
    simplest model.

    Args:
      costs: the profiled costs.
      terms: functions that compute the terms of M placements.
      latency_s: float [M], the measured latencies.
      rounds: as for `fit_posterior`.
    """
    profile = _profile_calibration(costs, np.asarray(costs.compute_s).shape[1:])
    fold = np.arange(len(latency_s)) % _NUM_FOLDS
    error_reduction = np.zeros(len(latency_s))
    for held_out in range(min(_NUM_FOLDS, len(latency_s))):
        is_training = fold != held_out
        training_terms = [terms[m] for m in np.flatnonzero(is_training).tolist()]
        fitted = fit_posterior(costs, training_terms, latency_s[is_training], rounds=rounds).mode
        for m in np.flatnonzero(~is_training).tolist():
            profile_error, fitted_error = (
                abs(
                    predict_latency(terms[m](apply_calibration(costs, used)), used) / latency_s[m]
                    - 1
                )
                for used in (profile, fitted)
            )
            error_reduction[m] = profile_error - fitted_error
    if len(error_reduction) < _NUM_FOLDS:
        return None
    standard_error = error_reduction.std(ddof=1) / len(error_reduction) ** 0.5
    if error_reduction.mean() <= standard_error:
        return None
    return fit_posterior(costs, terms, latency_s, rounds=rounds).mode


def classify_ops(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """Returns the kind of each operation, one of `NUM_KINDS`, int [N].

    A kind contains operations of one type that take about equally long, or operations of several
    types that take little time together. All kinds have about the same share of the total time,
    where an operation's time is its mean over the devices that support it.
    """
    compute_s = np.asarray(costs.compute_s, np.float64)
    is_supported = np.isfinite(compute_s)
    num_supporting = np.maximum(is_supported.sum(axis=1), 1)
    mean_s = np.where(is_supported, compute_s, 0.0).sum(axis=1) / num_supporting
    order = np.lexsort((mean_s, graph.op_types))
    midpoints_s = np.cumsum(mean_s[order]) - mean_s[order] / 2
    total_s = max(mean_s.sum(), np.finfo(float).tiny)
    kind = np.zeros(graph.num_ops, int)
    kind[order] = np.minimum(NUM_KINDS * midpoints_s / total_s, NUM_KINDS - 1)
    return kind


def apply_calibration(
    costs: CostModel, calibration: Calibration, kind: np.ndarray | None = None
) -> CostModel:
    """Returns the calibrated costs.

    Args:
      costs: the profiled costs of N operations.
      calibration: the coefficients of the same devices.
      kind: int [N], the kind of each operation; None if the calibration has no kinds.
    """
    factors = calibration.compute if kind is None else calibration.compute.T[kind]
    segment_costs = costs.segment_costs
    if segment_costs is not None:
        segment_costs = segment_costs._replace(
            fusion_loss_s=_calibrate_loss(segment_costs.fusion_loss_s, calibration),
            launch_s=_calibrate_loss(segment_costs.launch_s, calibration),
        )
    return costs._replace(
        compute_s=(np.asarray(costs.compute_s) * factors).astype(np.float32),
        transfer_latency_s=calibration.latency_s.astype(np.float32),
        transfer_s_per_byte=calibration.s_per_byte.astype(np.float32),
        transfer_fixed_s=(calibration.cut * np.asarray(costs.transfer_fixed_s)).astype(np.float32),
        fusion_loss_s=_calibrate_loss(costs.fusion_loss_s, calibration),
        segment_costs=segment_costs,
    )


def _calibrate_loss(fusion_loss_s: Array, calibration: Calibration) -> np.ndarray:
    """Returns calibrated fusion losses; an edge without a loss keeps none."""
    profiled_s = np.asarray(fusion_loss_s, np.float64)
    calibrated_s = calibration.cut * profiled_s + calibration.fusion_loss_s
    return np.where(profiled_s > 0, calibrated_s, 0.0).astype(np.float32)


def predict_latency(terms: Terms, calibration: Calibration) -> float:
    """Returns the latency in seconds that coefficients predict for a placement's terms."""
    return float(_flatten(terms) @ _flatten(calibration))


def to_json(calibration: Calibration) -> dict[str, Any]:
    """Returns JSON-able data."""
    return {name: np.asarray(value).tolist() for name, value in calibration._asdict().items()}


def from_json(data: dict[str, Any]) -> Calibration:
    """Reads the data of `to_json`."""
    arrays = ("compute", "latency_s", "s_per_byte")
    return Calibration(
        **{name: np.array(data[name]) for name in arrays},
        cut=data["cut"],
        fusion_loss_s=data["fusion_loss_s"],
    )


def sum_by_device(
    seconds: np.ndarray, placement: np.ndarray, num_devices: int, kind: np.ndarray | None
) -> np.ndarray:
    """Sums the seconds of operations on each device, as `Terms.compute_s`.

    Args:
      seconds: float [M], the seconds of each operation on its device.
      placement: int [M].
      num_devices: D.
      kind: int [M], the kind of each operation; None for no kinds.
    """
    if kind is None:
        return np.bincount(placement, seconds, num_devices)
    return np.bincount(placement * NUM_KINDS + kind, seconds, num_devices * NUM_KINDS).reshape(
        -1, NUM_KINDS
    )


def _profile_calibration(costs: CostModel, shape: tuple[int, ...]) -> Calibration:
    """Returns the coefficients that leave the costs unchanged; `compute` has the given shape."""
    off_diagonal = ~np.eye(shape[0], dtype=bool)
    latency_s, s_per_byte = (
        np.where(off_diagonal, np.asarray(matrix, np.float64), 0.0)
        for matrix in (costs.transfer_latency_s, costs.transfer_s_per_byte)
    )
    return Calibration(np.ones(shape), latency_s, s_per_byte, cut=1.0, fusion_loss_s=0.0)


def _prior_covariance(shape: tuple[int, ...]) -> np.ndarray:
    """Returns the covariance of the flat coefficients, whose `compute` has the given shape."""
    num_devices = shape[0]
    num_factors, num_pairs = int(np.prod(shape)), num_devices * (num_devices - 1)
    deviations = [
        np.full(num_factors, _KIND_DEVIATION),
        np.full(num_pairs, _LATENCY_DEVIATION_S),
        np.full(num_pairs, _DEVIATION_S_PER_BYTE),
        np.array([_CUT_DEVIATION, _CUT_DEVIATION_S]),
    ]
    covariance = np.diag(np.square(np.concatenate(deviations)))
    device = np.arange(num_factors) // (num_factors // num_devices)
    is_same_device = device[:, None] == device
    covariance[:num_factors, :num_factors] += _DEVICE_DEVIATION**2 * is_same_device
    return covariance


def _flatten(values: Calibration | Terms) -> np.ndarray:
    """Returns the J coefficients, or the quantities that they are multiplied with, as one array."""
    compute, per_transfer, per_byte, *losses = values
    off_diagonal = ~np.eye(len(compute), dtype=bool)
    return np.concatenate(
        [compute.ravel(), per_transfer[off_diagonal], per_byte[off_diagonal], losses]
    )


def _unflatten(flat: np.ndarray, shape: tuple[int, ...]) -> Calibration:
    """Returns the coefficients in a flat array; `shape` is that of `Calibration.compute`."""
    off_diagonal = ~np.eye(shape[0], dtype=bool)
    num_factors, num_pairs = int(np.prod(shape)), int(off_diagonal.sum())
    latency_s, s_per_byte = np.zeros(off_diagonal.shape), np.zeros(off_diagonal.shape)
    compute, latency_s[off_diagonal], s_per_byte[off_diagonal], losses = np.split(
        flat, np.cumsum([num_factors, num_pairs, num_pairs])
    )
    cut, fusion_loss_s = losses.tolist()
    return Calibration(compute.reshape(shape), latency_s, s_per_byte, cut, fusion_loss_s)


def serial_terms(
    graph: OpGraph, costs: CostModel, placement: np.ndarray, kind: np.ndarray | None = None
) -> Terms:
    """Computes the terms of a placement under the `serial` objective.

    Args:
      graph: N operations.
      costs: the profiled costs.
      placement: int32 [N].
      kind: int [N], the kind of each operation; None for no kinds.
    """
    chex.assert_shape(placement, (graph.num_ops,))
    chex.assert_type(placement, int)
    compute_s = np.asarray(costs.compute_s, np.float64)
    fusion_loss_s = np.asarray(costs.fusion_loss_s, np.float64)
    num_devices = compute_s.shape[1]
    sender_device, reader_device = placement[graph.senders], placement[graph.receivers]
    # A tensor is handed to a device once, however many operations read it there.
    cut_edges = np.flatnonzero(sender_device != reader_device)
    tensor_and_device = (
        graph.tensors[cut_edges].astype(np.int64) * num_devices + reader_device[cut_edges]
    )
    transfers = cut_edges[np.unique(tensor_and_device, return_index=True)[1]]
    devices = sender_device[transfers], reader_device[transfers]
    num_transfers, num_bytes = np.zeros((num_devices,) * 2), np.zeros((num_devices,) * 2)
    np.add.at(num_transfers, devices, 1)
    np.add.at(num_bytes, devices, graph.edge_bytes[transfers])
    lost_fusions_s = fusion_loss_s[cut_edges]
    return Terms(
        compute_s=sum_by_device(
            compute_s[np.arange(graph.num_ops), placement], placement, num_devices, kind
        ),
        transfers=num_transfers,
        transfer_bytes=num_bytes,
        fusion_loss_s=float(
            lost_fusions_s.sum() + np.asarray(costs.transfer_fixed_s, np.float64)[transfers].sum()
        ),
        num_lost_fusions=int(np.count_nonzero(lost_fusions_s)),
    )
