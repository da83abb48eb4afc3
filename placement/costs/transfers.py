"""Costs of handing a tensor from one device to another, fitted to measured samples.

    seconds = latency_s + bytes * s_per_byte

The samples are few, their sizes are not chosen, and some are far off: on a busy machine by a factor
of seventy. If all tensors are tiny, any slope explains them. Therefore

- the error of a sample is relative to the approximate time of a sample of its size, and counts by
  Huber's loss: quadratic if it is small, then linear, so that outliers have a limited influence
  (Huber 1964, "Robust Estimation of a Location Parameter");
- the latency is at least zero, and the time of a byte is between zero, if memory is shared, and
  `MAX_COPIES_PER_BYTE` times that of a copy within this machine;
- a weak pull towards the time of such a copy decides whatever the samples leave open.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.costs.tables import Transfers

# The greatest time of a byte, relative to a copy. Converting precision and layout reads and writes
# every byte a few times, slower than a copy: ten copies. The slowest links to accelerators (a lane
# of PCIe 2.0, or USB 3) carry 0.4 GB/s, and a core copies 5 to 10 GB/s: 25 copies. A slower sample
# did not measure a transfer.
MAX_COPIES_PER_BYTE = 32.0

_LATENCY_UNIT_S = 5e-6  # about the latency of the smallest transfer
_PULL = 1e-2  # weight of the pull towards a copy, relative to one sample's error
_HUBER_THRESHOLD = 0.1  # larger relative errors count linearly


class TransferFit(NamedTuple):
    """Samples between two devices, in both directions, and the line fitted to them."""

    pair: tuple[int, int]  # indices of the devices
    latency_s: float
    s_per_byte: float
    num_bytes: np.ndarray  # float64 [S]
    seconds: np.ndarray  # float64 [S]: measured; below zero if a transfer was too short to measure

    def errors(self) -> np.ndarray:
        """Returns each sample's distance from the line, relative to the larger one, float64 [S]."""
        line_s = self.latency_s + self.num_bytes * self.s_per_byte
        larger_s = np.maximum(np.maximum(np.abs(self.seconds), line_s), np.finfo(float).tiny)
        return np.abs(line_s - self.seconds) / larger_s


def fit_line(
    pair: tuple[int, int], samples: Sequence[tuple[float, float]], copy_s_per_byte: float
) -> TransferFit:
    """Fits a line to samples of bytes and seconds; without any it is a copy's, without latency.

    `pair` has the indices of the devices. `copy_s_per_byte` is the time of a byte in a copy within
    this machine's memory, above zero.
    """
    from scipy.optimize import least_squares  # takes 0.3 s, of which most runs have no need

    num_bytes, seconds = np.array(samples, float).reshape(-1, 2).T
    # The unknowns are the latency in units of `_LATENCY_UNIT_S` and the time of a byte in copies,
    # so that both are near 1.
    copy_s = num_bytes * copy_s_per_byte
    approximate_s = _LATENCY_UNIT_S + copy_s
    matrix = np.stack([_LATENCY_UNIT_S / approximate_s, copy_s / approximate_s], axis=1)
    pull = _PULL * max(1, len(seconds)) ** 0.5 * np.array([[0.0, 1.0]])
    matrix = np.concatenate([matrix, pull])
    target = np.append(seconds / approximate_s, pull[0, 1])
    latency_units, copies = least_squares(
        lambda unknowns: matrix @ unknowns - target,
        x0=[1.0 if len(seconds) else 0.0, 1.0],
        jac=lambda _: matrix,
        bounds=([0.0, 0.0], [np.inf, MAX_COPIES_PER_BYTE]),
        loss="huber",
        f_scale=_HUBER_THRESHOLD,
    ).x
    return TransferFit(
        pair,
        float(latency_units * _LATENCY_UNIT_S),
        float(copies * copy_s_per_byte),
        num_bytes,
        seconds,
    )


def make_matrices(fits: Sequence[TransferFit], num_devices: int) -> Transfers:
    """Returns the costs fitted to each pair of devices as symmetric matrices, diagonal zero."""
    latency_s, s_per_byte = np.zeros((num_devices,) * 2), np.zeros((num_devices,) * 2)
    for transfer in fits:
        for i, j in (transfer.pair, transfer.pair[::-1]):
            latency_s[i, j] = transfer.latency_s
            s_per_byte[i, j] = transfer.s_per_byte
    return Transfers(latency_s, s_per_byte)


def to_json(fits: Sequence[TransferFit], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Returns JSON-able data: each line, its samples, and their distances from it."""
    return [
        {
            "devices": [labels[device] for device in transfer.pair],
            "latency_s": transfer.latency_s,
            "s_per_byte": transfer.s_per_byte,
            "median_error": float(np.median(errors)) if errors.size else None,
            "p90_error": float(np.quantile(errors, 0.9)) if errors.size else None,
            "bytes": transfer.num_bytes.tolist(),
            "seconds": transfer.seconds.tolist(),
        }
        for transfer in fits
        for errors in [transfer.errors()]
    ]


def describe_fit(transfer: dict[str, Any]) -> str:
    """Describes one pair of devices of `to_json` in a line."""
    latency_us = round(1e6 * transfer["latency_s"], 3)
    mebibyte_us = round(1e6 * 2**20 * transfer["s_per_byte"], 3)
    pair = " - ".join(label.split(" [")[0] for label in transfer["devices"])
    line = f"{pair}: {latency_us:.3g} us and {mebibyte_us:.3g} us a MiB"
    samples = f"{len(transfer['seconds'])} samples"
    if transfer["median_error"] is None:
        return f"{line}, assumed: nothing was measured"
    if latency_us == mebibyte_us == 0:
        return f"{pair}: too short to measure; {samples}"
    return (
        f"{line}; {samples}, "
        f"half within {transfer['median_error']:.0%} of this, "
        f"90% within {transfer['p90_error']:.0%}"
    )
