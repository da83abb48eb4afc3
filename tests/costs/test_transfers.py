import json

import numpy as np
import pytest

from placement.costs import transfers

COPY = 1e-10  # seconds a byte: 10 GB/s
PAIR = (0, 1)
MIB = 2.0**20


def fit(sizes: np.ndarray, seconds: np.ndarray) -> transfers.TransferFit:
    return transfers.fit_line(PAIR, list(zip(sizes, seconds, strict=True)), COPY)


def at(found: transfers.TransferFit, num_bytes: float) -> float:
    return found.latency_s + num_bytes * found.s_per_byte


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.exp(0.1 * np.random.default_rng(seed).standard_normal(count))


def test_tiny_and_large_tensors():
    sizes = np.concatenate([np.full(1000, 8.0), [65536.0] * 8, [MIB] * 8])
    found = fit(sizes, (6e-6 + sizes * 3e-10) * noise(1016))
    assert at(found, MIB) == pytest.approx(6e-6 + MIB * 3e-10, rel=0.1)
    assert at(found, 8) == pytest.approx(6e-6, rel=0.05)


def test_outliers():
    sizes = np.tile([64.0, 4096.0, 65536.0, MIB, 65536.0, 4096.0, 64.0], 8)
    seconds = (6e-6 + sizes * 2e-10) * noise(len(sizes))
    seconds[::4] *= 70
    found = fit(sizes, seconds)
    for size in (64.0, MIB):
        assert at(found, size) == pytest.approx(6e-6 + size * 2e-10, rel=0.25)
    assert np.median(found.errors()) < 0.2  # and the residuals tell of them
    assert found.errors().max() > 0.9


def test_fits_are_not_negative():
    sizes = np.array([4096.0, 65536.0, MIB])
    below = fit(sizes, -1e-6 - sizes * 1e-10)
    assert below.latency_s == pytest.approx(0, abs=1e-8)
    assert below.s_per_byte == pytest.approx(0, abs=1e-12)
    none = fit(np.empty(0), np.empty(0))
    assert none.latency_s == pytest.approx(0, abs=1e-12)
    assert none.s_per_byte == pytest.approx(COPY)
    (told,) = transfers.to_json([none], ["A [a]", "B [b]"])
    assert "assumed" in transfers.describe_fit(told)


def test_matrices_and_descriptions():
    sizes = np.array([64.0, 4096.0, MIB])
    found = [fit(sizes, 5e-6 + sizes * 2e-10)]
    matrices = transfers.make_matrices(found, 3)
    for matrix, value in zip(matrices, found[0][1:3], strict=True):
        assert matrix.tolist() == [[0, value, 0], [value, 0, 0], [0, 0, 0]]
    (told,) = json.loads(json.dumps(transfers.to_json(found, ["A [a]", "B [b]", "C"])))
    assert told["seconds"] == found[0].seconds.tolist()
    words = transfers.describe_fit(told)
    assert words.startswith("A - B: 5 us and 210 us a MiB; 3 samples, half within 0%")
    words = transfers.describe_fit(told | {"s_per_byte": 1e-19})  # what a fit gives for zero
    assert words.startswith("A - B: 5 us and 0 us a MiB; ")
    words = transfers.describe_fit(told | {"s_per_byte": 1e-19, "latency_s": 1e-12})
    assert words == "A - B: too short to measure; 3 samples"
