"""Formatting of numbers: the unit of a table's latencies, durations, sizes."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

NONE = "-"  # stands for a missing number
_TIMES = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


class Unit(NamedTuple):
    """Unit and number of decimals of all latencies of one table."""

    name: str  # 's', 'ms' or 'us'
    per_s: float
    decimals: int

    def write(self, seconds: Any) -> str:
        """Returns the latency in this unit, without the unit's name."""
        value = number(seconds)
        return NONE if value is None else f"{value * self.per_s:.{self.decimals}f}"

    def convert(self, seconds: Any) -> float:
        """Returns the latency in this unit; nan where there is none."""
        return or_nan(seconds) * self.per_s


def number(value: Any) -> float | None:
    """Returns the value as a float, or None unless it is finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def or_nan(value: Any) -> float:
    """Returns the value as a float, or nan unless it is finite."""
    return float(value) if number(value) is not None else math.nan


def ratio(value: float, unit: float) -> float:
    """Returns value / unit, neither negative: 1 of two zeros, inf where the unit alone is zero."""
    if unit == 0:
        return 1.0 if value == 0 else math.inf
    return value / unit


def write(value: Any, form: str) -> str:
    """Returns the number in a format such as '.3f'; '-' where there is none."""
    finite = number(value)
    return NONE if finite is None else f"{finite:{form}}"


def with_interval(value: Any, low: Any, high: Any, form: Callable[[Any], str]) -> str:
    """Returns '1.016 [1.003, 1.044]', the value alone without an interval, '-' without both."""
    if number(value) is None:
        return NONE
    has_interval = low is not None and not math.isnan(low)
    return f"{form(value)} [{form(low)}, {form(high)}]" if has_interval else form(value)


def latency_unit(seconds: Iterable[Any]) -> Unit:
    """Returns the unit of the median latency, with four digits for the smallest latency."""
    values = [value for value in map(number, seconds) if value] or [1e-3]
    name, per_s = _suitable(float(np.median(values)))
    digits_before = max(1, math.floor(math.log10(min(values) * per_s)) + 1)
    return Unit(name, per_s, max(0, 4 - digits_before))


def percentage(share: float) -> str:
    """Returns a share as a percentage with two digits or more: '2.3%', '41%'."""
    return f"{share:.{0 if abs(share) >= 0.1 else 1}%}"


def duration(seconds: float) -> str:
    """Returns a duration with three digits and a suitable unit: '1.25 ms'."""
    name, per_s = _TIMES[0] if seconds == 0 else _suitable(seconds)
    return f"{seconds * per_s:.3g} {name}"


def size(num_bytes: float) -> str:
    """Returns a number of bytes with three digits and a suitable unit: '12.5 MB'."""
    suitable = (unit for unit in _SIZES if num_bytes >= unit[1])
    name, unit_bytes = next(suitable, ("bytes", 1.0))
    return f"{num_bytes / unit_bytes:.3g} {name}"


def _suitable(seconds: float) -> tuple[str, float]:
    """Returns the largest unit that is at most `seconds`, else the smallest unit."""
    return next((unit for unit in _TIMES if seconds * unit[1] >= 1), _TIMES[-1])
