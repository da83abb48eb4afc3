"""Bisection of errors, on networks whose errors are known."""

import math

import numpy as np
import pytest

from placement.search import sensitivity
from placement.search.sensitivity import Part


def additive(errors):
    """Measures the sum of errors, and records the measured parts."""
    measured = []

    def measure(first, last):
        measured.append((first, last))
        return sum(errors[first:last])

    return measure, measured


def never() -> bool:
    return False


def test_one_unit_that_causes_the_error_is_found_in_logarithmic_time():
    errors = np.zeros(1024)
    errors[700] = 0.5
    measure, measured = additive(errors)
    parts = sensitivity.bisect(1024, measure, 0.01, never)
    assert [part for part in parts if part.error] == [Part(700, 701, 0.5)]
    assert len(measured) == 1 + 2 * 10
    np.testing.assert_array_equal(sensitivity.share_errors(parts), errors)


def test_parts_cover_every_unit_once_and_errors_of_single_units_are_exact():
    errors = np.random.default_rng(0).random(37)
    parts = sensitivity.bisect(37, additive(errors)[0], 0.0, never)
    assert [(part.first, part.last) for part in parts] == [(i, i + 1) for i in range(37)]
    np.testing.assert_allclose(sensitivity.share_errors(parts), errors)


def test_a_part_with_a_negligible_error_stays_whole():
    errors = np.zeros(8)
    errors[0], errors[5] = 0.5, 0.01
    measure, measured = additive(errors)
    parts = sensitivity.bisect(8, measure, 0.02, never)
    assert Part(4, 8, pytest.approx(0.01)) in parts
    assert (4, 6) not in measured


def test_units_that_are_wrong_only_together_stay_together():
    """Units 2 to 5 are wrong if all four of them are on the device."""

    def measure(first, last):
        return 0.8 if first <= 2 and last >= 6 else 0.001

    parts = sensitivity.bisect(8, measure, 0.01, never)
    assert parts == [Part(0, 8, 0.8)]
    np.testing.assert_allclose(sensitivity.share_errors(parts), np.full(8, 0.1))


def test_the_largest_error_is_divided_first_until_time_is_over():
    errors = np.zeros(64)
    errors[10], errors[50] = 0.1, 0.9
    measure, measured = additive(errors)
    parts = sensitivity.bisect(64, measure, 0.01, lambda: len(measured) > 6)
    assert Part(0, 32, pytest.approx(0.1)) in parts
    assert Part(48, 56, pytest.approx(0.9)) in parts


def test_infinite_errors_and_failed_measurements_end_at_a_part():
    def measure(first, last):
        if (first, last) in ((4, 6), (6, 8)):
            return math.nan if first == 6 else math.inf
        return math.inf if first <= 4 < last else 0.0

    parts = sensitivity.bisect(8, measure, 0.01, never)
    assert parts == [Part(0, 4, 0.0), Part(4, 8, math.inf)]
    assert np.isinf(sensitivity.share_errors(parts)[4:]).all()
