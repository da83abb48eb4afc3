"""What handing a tensor from one device to another costs, fitted to measured samples.

    seconds = latency_s + bytes * s_per_byte

Samples are few, of sizes that are not chosen, and some are far off: on a busy machine by a factor
of seventy, and where all tensors are tiny any slope explains them. So

- each sample's error counts relative to what a sample of its size takes about, by Huber's loss:
  quadratic while it is small, then linear, so that what is far off pulls no harder (Huber 1964,
  "Robust Estimation of a Location Parameter");
- the latency is at least zero, and a byte takes between nothing, where memory is shared, and
  `SLOWEST` times what copying it within this machine takes;
- what the samples do not tell is taken from that copy, by a pull that is too weak to matter where
  they do.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from placement.costs.tables import Transfers

# A transfer's conversions of precision and layout read and write every byte a few times, none as
# quickly as a copy: ten copies. The slowest links to accelerators, a lane of PCIe 2.0 or USB 3,
# carry 0.4 GB/s, where a core copies 5 to 10 GB/s: 25 copies. What is slower was not the transfer.
SLOWEST = 32.0

_LATENCY_S = 5e-6  # about what the smallest takes, as a unit
_PULL = 1e-2  # of a byte's seconds towards those of a copy, relative to one sample's error
_USUAL_ERROR = 0.1  # beyond it errors count linearly


class TransferFit(NamedTuple):
    """What was measured between two devices, in both directions, and the line through it."""

    pair: tuple[int, int]  # indices of the devices
    latency_s: float
    s_per_byte: float
    num_bytes: np.ndarray  # float64 [S]
    seconds: np.ndarray  # float64 [S]: measured; below zero where that was too short to tell

    def errors(self) -> np.ndarray:
        """Returns float64 [S]: how far the line is from each sample, relative to the larger one."""
        line_s = self.latency_s + self.num_bytes * self.s_per_byte
        larger_s = np.maximum(np.maximum(np.abs(self.seconds), line_s), np.finfo(float).tiny)
        return np.abs(line_s - self.seconds) / larger_s


def fit(
    pair: tuple[int, int], samples: Sequence[tuple[float, float]], copy_s_per_byte: float
) -> TransferFit:
    """Returns the line through samples; that of a copy without any latency if there are none.

    Args:
      pair: indices of the devices.
      samples: bytes and seconds, finite.
      copy_s_per_byte: of a copy within this machine's memory, above zero.
    """
    num_bytes, seconds = np.array(samples, float).reshape(-1, 2).T
    # In units of a small transfer's latency and of copies; so the two unknowns are near 1.
    copies_s = num_bytes * copy_s_per_byte
    about_s = _LATENCY_S + copies_s
    matrix = np.stack([_LATENCY_S / about_s, copies_s / about_s], axis=1)
    pull = _PULL * max(1, len(seconds)) ** 0.5 * np.array([[0.0, 1.0]])
    matrix = np.concatenate([matrix, pull])
    target = np.append(seconds / about_s, pull[0, 1])
    fitted = least_squares(
        lambda unknown: matrix @ unknown - target,
        x0=[1.0 if len(seconds) else 0.0, 1.0],
        jac=lambda _: matrix,
        bounds=([0.0, 0.0], [np.inf, SLOWEST]),
        loss="huber",
        f_scale=_USUAL_ERROR,
    ).x
    return TransferFit(
        pair, float(fitted[0] * _LATENCY_S), float(fitted[1] * copy_s_per_byte), num_bytes, seconds
    )


def matrices(fits: Sequence[TransferFit], num_devices: int) -> Transfers:
    """Returns matrices of what was fitted, the same in both directions; a zero diagonal."""
    latency_s, s_per_byte = np.zeros((num_devices,) * 2), np.zeros((num_devices,) * 2)
    for transfer in fits:
        for i, j in (transfer.pair, transfer.pair[::-1]):
            latency_s[i, j], s_per_byte[i, j] = transfer.latency_s, transfer.s_per_byte
    return Transfers(latency_s, s_per_byte)


def to_json(fits: Sequence[TransferFit], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Returns JSON-able data: each line, how far it is from its samples, and these."""
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


def in_words(transfer: dict[str, Any]) -> str:
    """Describes one pair of `to_json` in a line."""
    line_s = 2**20 * transfer["s_per_byte"]
    words = (
        f"{' - '.join(label.split(' [')[0] for label in transfer['devices'])}: "
        f"{1e6 * transfer['latency_s']:.3g} us and {1e6 * line_s:.3g} us a MiB"
    )
    if transfer["median_error"] is None:
        return f"{words}, assumed: nothing was measured"
    return (
        f"{words}; {len(transfer['seconds'])} samples, "
        f"half within {transfer['median_error']:.0%} of this, "
        f"nine tenths within {transfer['p90_error']:.0%}"
    )
