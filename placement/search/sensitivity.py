"""Sensitivity of a network's outputs to operations that compute less precisely, by bisection.

A measurement runs a part of the network, successive units in topological order, on the inaccurate
device and the rest on an accurate one. It returns the error of the outputs. The search starts with
the whole network as one part and repeats:

1. take the part with the largest error that is not final,
2. measure both of its halves,
3. replace it by its halves.

A part is final if it is one unit, or if its error is negligible. It is final too if neither half
has half of its error: the error then arises from operations of both halves together, and smaller
parts would hide it. An OpenVINO device, for example, computes a sum in f32 where no convolution is
beside it, whatever its precision.

The units of a final part share its error equally. This makes errors additive, which they are only
approximately: rounding errors of independent operations partly cancel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# `measure(first, last) -> error` of the outputs if the units first to last - 1 are on the device.
MeasureError = Callable[[int, int], float]


class Part(NamedTuple):
    """Successive units and the error that they cause together."""

    first: int
    last: int  # exclusive
    error: float

    @property
    def num_units(self) -> int:
        """The number of units."""
        return self.last - self.first


def bisect(
    num_units: int, measure: MeasureError, negligible: float, is_over: Callable[[], bool]
) -> list[Part]:
    """Divides units into parts, finely where errors arise.

    Args:
      num_units: at least 1.
      measure: measures the error of a part; nan if that failed, which makes its parent final.
      negligible: the error up to which a part is not divided.
      is_over: whether time is over; asked before every division.

    Returns:
      The parts, in order; they contain every unit once.
    """
    final: list[Part] = []
    pending = [Part(0, num_units, measure(0, num_units))]
    while pending:
        part = max(pending, key=lambda pending_part: pending_part.error)
        pending.remove(part)
        if part.num_units == 1 or not part.error > negligible or is_over():
            final.append(part)
            continue
        middle = (part.first + part.last) // 2
        halves = [
            Part(first, last, measure(first, last))
            for first, last in ((part.first, middle), (middle, part.last))
        ]
        if np.max([half.error for half in halves]) >= part.error / 2:  # False for nan
            pending += halves
        else:
            final.append(part)
    return sorted(final)


def share_errors(parts: list[Part]) -> np.ndarray:
    """Returns the error of every unit, float64 [U]: an equal share of its part's error."""
    return np.concatenate([np.full(part.num_units, part.error / part.num_units) for part in parts])
