"""Corrects profiled costs by measured latencies of placements.

A profile misses what only shows where a model is cut: what one more submodel costs to start, what a
tensor's change of layout and precision costs, what a lost fusion costs. The serial objective is
linear in coefficients of these terms, so that measured placements correct them by least squares:

    latency(p) = sum_d sum_k x_dk * compute_s on d of operations of kind k
               + sum_{s != d} latency_s[s, d] * transfers s -> d + s_per_byte[s, d] * bytes s -> d
               + z * (fusion_loss_s of the lost fusions) + w * (number of lost fusions)

Placements tell some of these apart poorly, such as the two directions of a transfer. So each
coefficient c is drawn towards the profile's value, the prior, as far as the prior is sure of it: a
Gaussian, in which the factors x_dk of a device have a common part, that of a clock or a precision,
and each a part of its own. With the covariance S of the prior, the sum of

    sum_m ((predicted / measured - 1) / error)^2 + (c - prior)^T S^-1 (c - prior)

is, up to constants, twice the negative logarithm of a posterior. All coefficients are at least
zero, so its minimum is a non-negative least squares problem. Around it the posterior is taken for a
Gaussian, the one that it would be without that limit (Bayesian linear regression).

Where devices overlap, the latency is the sum of these terms along a longest path of segments
(`placement.analysis.segments`), which depends on the coefficients: it is fitted in rounds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import numpy as np
from scipy.optimize import nnls

from placement.types import Array, CostModel, OpGraph

ERROR = 0.02  # of a prediction that has everything right but what the model cannot express
_SURE = 4  # measurements that `ERROR` is worth where the error is estimated
KINDS = 6
_PARTS = 5  # of the placements, in cross-validation
# Standard deviations: of compute and lost fusions relative to the profile; of transfers absolute,
# since the micro-benchmark crosses other tensors between other operations.
_DEVICE = 1.0  # of all that a device computes
_KIND = 0.4  # of a kind of operation beside
_CUT = 1.0
_CUT_S = 20e-6
_LATENCY_S = 20e-6
_S_PER_BYTE = 0.2e-9


class Terms(NamedTuple):
    """What the coefficients of a placement's latency are multiplied with."""

    # float64 [D], or [D, K] of each kind: on each device; what it takes longer, and what lost
    # fusions cost more, as other devices compute meanwhile is counted with them
    compute_s: np.ndarray
    transfers: np.ndarray  # float64 [D, D]: tensors handed over
    bytes: np.ndarray  # float64 [D, D]: of these
    lost_s: float  # what lost fusions cost
    lost: float  # how many were


# The terms of a placement, at the profiled costs, given the costs as calibrated so far, where it
# depends on them what a latency consists of.
TermsAt = Callable[[CostModel], Terms]


class Calibration(NamedTuple):
    """The coefficients; devices in the order of the placement's indices."""

    compute: np.ndarray  # float64 [D], or [D, K] of each kind: factors of compute_s
    latency_s: np.ndarray  # float64 [D, D], zero diagonal
    s_per_byte: np.ndarray  # float64 [D, D], zero diagonal
    cut: float  # factor of fusion_loss_s
    fusion_loss_s: float  # what every lost fusion costs beside


class Posterior(NamedTuple):
    """What measured latencies say of the J coefficients."""

    mode: Calibration  # the most probable ones
    factor: np.ndarray  # float64 [J, J]: times its transpose it is their covariance
    error: float  # standard deviation of measured latencies from predicted ones, relative

    def draw(self, rng: np.random.Generator) -> Calibration:
        """Draws coefficients, none below zero; `rng` is consumed."""
        mode, shape = _flatten_calibration(self.mode), self.mode.compute.shape
        drawn = mode + self.factor @ rng.standard_normal(len(mode))
        return _unflatten(np.maximum(drawn, 0.0), shape)


def fit(
    costs: CostModel,
    terms: Sequence[TermsAt],
    latency_s: np.ndarray,
    *,
    rounds: int = 1,
    kind: np.ndarray | None = None,
    error: float | None = ERROR,
) -> Posterior:
    """Computes what measured latencies say of the coefficients.

    Args:
      costs: as profiled.
      terms: of M placements.
      latency_s: float [M], measured.
      rounds: how often to fit, each time with terms made anew.
      kind: int [N], of each operation, where the terms tell kinds apart (`kinds`).
      error: relative, of a measured latency from the one that the right coefficients predict;
        None: as large as what each round leaves unexplained, `ERROR` before the first.
    """
    chex.assert_rank(latency_s, 1)
    chex.assert_type(latency_s, float)
    num_devices = np.asarray(costs.compute_s).shape[1]
    shape = (num_devices,) if kind is None else (num_devices, KINDS)
    prior, covariance = _prior(costs, shape)
    # Every coefficient in units of its deviation, for the sake of rounding.
    deviation = np.sqrt(np.diag(covariance))
    of_prior = np.linalg.inv(np.linalg.cholesky(covariance / np.outer(deviation, deviation)))
    calibration, spread = _unflatten(prior, shape), ERROR if error is None else error
    precision = of_prior.T @ of_prior
    for _ in range(rounds):
        there = apply(costs, calibration, kind)
        rows = [_flatten_terms(of(there)) for of in terms]
        relative = np.reshape(rows, (len(latency_s), len(prior))) / latency_s[:, None] * deviation
        matrix = np.concatenate([relative / spread, of_prior])
        target = np.concatenate([np.full(len(rows), 1 / spread), of_prior @ (prior / deviation)])
        found = nnls(matrix, target)[0]
        calibration, precision = _unflatten(found * deviation, shape), matrix.T @ matrix
        if error is None:
            unexplained = np.square(relative @ found - 1).sum()
            spread = float(np.sqrt((_SURE * ERROR**2 + unexplained) / (_SURE + len(rows))))
    factor = deviation[:, None] * np.linalg.cholesky(np.linalg.inv(precision))
    return Posterior(calibration, factor, spread)


def cross_validated(
    costs: CostModel, terms: Sequence[TermsAt], latency_s: np.ndarray, *, rounds: int = 1
) -> Calibration | None:
    """Computes the most probable coefficients; None where the profile's own are as good.

    Every placement is predicted by coefficients that are fitted to the other parts of the
    placements, and by the profile's own. The calibration is worth it if its relative errors are
    less by more than the standard error of their mean difference: the one-standard-error rule
    (Breiman, Friedman, Olshen and Stone 1984, section 3.4.3), with no calibration as the simplest.

    Args:
      costs: as profiled.
      terms: of M placements.
      latency_s: float [M], measured.
      rounds: of `fit`.
    """
    profiled = _unflatten(*_profiled(costs))
    part = np.arange(len(latency_s)) % _PARTS
    gain = np.zeros(len(latency_s))
    for held_out in range(min(_PARTS, len(latency_s))):
        others = part != held_out
        seen = [of for of, other in zip(terms, others, strict=True) if other]
        found = fit(costs, seen, latency_s[others], rounds=rounds).mode
        for m in np.flatnonzero(~others).tolist():
            errors = [
                abs(predicted_s(terms[m](apply(costs, by)), by) / latency_s[m] - 1)
                for by in (profiled, found)
            ]
            gain[m] = errors[0] - errors[1]
    if len(gain) < _PARTS or gain.mean() <= gain.std(ddof=1) / len(gain) ** 0.5:
        return None
    return fit(costs, terms, latency_s, rounds=rounds).mode


def kinds(graph: OpGraph, costs: CostModel) -> np.ndarray:
    """Returns int [N]: which of `KINDS` kinds an operation is of.

    One kind has operations of a type that take about equally long, or of several types that take
    little together: each has about the same share of what all operations take, a mean over devices.
    """
    compute_s = np.asarray(costs.compute_s, np.float64)
    able = np.isfinite(compute_s)
    mean_s = np.where(able, compute_s, 0.0).sum(axis=1) / np.maximum(able.sum(axis=1), 1)
    order = np.lexsort((mean_s, graph.op_types))
    before_s = np.cumsum(mean_s[order]) - mean_s[order] / 2
    kind = np.zeros(graph.num_ops, int)
    kind[order] = np.minimum(KINDS * before_s / max(mean_s.sum(), np.finfo(float).tiny), KINDS - 1)
    return kind


def apply(costs: CostModel, calibration: Calibration, kind: np.ndarray | None = None) -> CostModel:
    """Returns the costs as calibrated.

    Args:
      costs: of N operations, as profiled.
      calibration: of the same devices.
      kind: int [N], of each operation, where the calibration has factors of each kind.
    """
    factors = calibration.compute if kind is None else calibration.compute.T[kind]
    in_segments = costs.in_segments
    if in_segments is not None:
        in_segments = in_segments._replace(
            fusion_loss_s=_calibrated_s(in_segments.fusion_loss_s, calibration),
            launch_s=_calibrated_s(in_segments.launch_s, calibration),
        )
    return costs._replace(
        compute_s=(np.asarray(costs.compute_s) * factors).astype(np.float32),
        transfer_latency_s=calibration.latency_s.astype(np.float32),
        transfer_s_per_byte=calibration.s_per_byte.astype(np.float32),
        fusion_loss_s=_calibrated_s(costs.fusion_loss_s, calibration),
        in_segments=in_segments,
    )


def _calibrated_s(fusion_loss_s: Array, calibration: Calibration) -> np.ndarray:
    lost_s = np.asarray(fusion_loss_s, np.float64)
    more_s = calibration.cut * lost_s + calibration.fusion_loss_s
    return np.where(lost_s > 0, more_s, 0.0).astype(np.float32)


def predicted_s(terms: Terms, calibration: Calibration) -> float:
    """Computes the latency in seconds that coefficients give to a placement's terms."""
    return float(_flatten_terms(terms) @ _flatten_calibration(calibration))


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


def by_device(
    seconds: np.ndarray, placement: np.ndarray, num_devices: int, kind: np.ndarray | None
) -> np.ndarray:
    """Sums up what operations take on each device: `Terms.compute_s`.

    Args:
      seconds: float [M], of each operation where it is.
      placement: int [M].
      num_devices: D.
      kind: int [M], of each operation; None: all are alike.
    """
    if kind is None:
        return np.bincount(placement, seconds, num_devices)
    return np.bincount(placement * KINDS + kind, seconds, num_devices * KINDS).reshape(-1, KINDS)


def _profiled(costs: CostModel) -> tuple[np.ndarray, tuple[int, ...]]:
    """The coefficients that leave costs as they are, flat, and the shape of their `compute`."""
    num_devices = np.asarray(costs.compute_s).shape[1]
    apart = _apart(num_devices)
    between = (costs.transfer_latency_s, costs.transfer_s_per_byte)
    links = [np.asarray(matrix, np.float64)[apart] for matrix in between]
    return np.concatenate([np.ones(num_devices), *links, [1.0, 0.0]]), (num_devices,)


def _prior(costs: CostModel, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the covariance of the coefficients, flat; `shape` is `compute`'s."""
    num_devices = shape[0]
    num_factors, num_pairs = int(np.prod(shape)), num_devices * (num_devices - 1)
    mean = np.concatenate([np.ones(num_factors), _profiled(costs)[0][num_devices:]])
    deviation = [
        np.full(num_factors, _KIND),
        np.full(num_pairs, _LATENCY_S),
        np.full(num_pairs, _S_PER_BYTE),
        np.array([_CUT, _CUT_S]),
    ]
    covariance = np.diag(np.square(np.concatenate(deviation)))
    device = np.arange(num_factors) // (num_factors // num_devices)
    covariance[:num_factors, :num_factors] += _DEVICE**2 * (device[:, None] == device)
    return mean, covariance


def _apart(num_devices: int) -> np.ndarray:
    return ~np.eye(num_devices, dtype=bool)


def _unflatten(flat: np.ndarray, shape: tuple[int, ...]) -> Calibration:
    apart = _apart(shape[0])
    num_factors, num_pairs = int(np.prod(shape)), int(apart.sum())
    latency_s, s_per_byte = np.zeros(apart.shape), np.zeros(apart.shape)
    compute, latency_s[apart], s_per_byte[apart], cut = np.split(
        flat, np.cumsum([num_factors, num_pairs, num_pairs])
    )
    return Calibration(compute.reshape(shape), latency_s, s_per_byte, float(cut[0]), float(cut[1]))


def _flatten_calibration(of: Calibration) -> np.ndarray:
    apart = _apart(len(of.compute))
    between = [of.latency_s[apart], of.s_per_byte[apart]]
    return np.concatenate([of.compute.ravel(), *between, [of.cut, of.fusion_loss_s]])


def _flatten_terms(of: Terms) -> np.ndarray:
    apart = _apart(len(of.compute_s))
    between = [of.transfers[apart], of.bytes[apart]]
    return np.concatenate([of.compute_s.ravel(), *between, [of.lost_s, of.lost]])


def serial_terms(
    graph: OpGraph, costs: CostModel, placement: np.ndarray, kind: np.ndarray | None = None
) -> Terms:
    """Computes the terms of the `serial` objective.

    Args:
      graph: N operations.
      costs: as profiled.
      placement: int32 [N].
      kind: int [N], where they are to tell kinds of operations apart.
    """
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
        compute_s=by_device(chosen_s, placement, num_devices, kind),
        transfers=count,
        bytes=bytes_,
        lost_s=float(lost.sum()),
        lost=int(np.count_nonzero(lost)),
    )
