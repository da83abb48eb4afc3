import math

import numpy as np
import openvino as ov
import pytest

from placement.costs.transfers import TransferFit
from placement.runtime import devices
from placement.runtime.measurement.request import Transfers
from placement.runtime.measurement.worker import chains
from tests.runtime import small

HOST = devices.resolve("host")


def measured(model: ov.Model) -> TransferFit:
    """Measures in this process, with few rounds, between the two devices."""
    core = devices.open_core(HOST)
    (found,) = Transfers(HOST).parse(
        chains.measure_transfers(core, model, HOST, math.inf, lambda: None)
    )
    return found


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(chains, "_MAX_ROUNDS", 5)


@pytest.mark.alone
def test_transfers_have_several_sizes():
    found = measured(small.convolutions(channels=32, size=28))
    assert found.pair == (0, 1)
    assert {2.0**12, 2.0**16, 2.0**20} < set(found.num_bytes)  # and those of the model's tensors
    assert len(found.seconds) == len(found.num_bytes) == len(set(found.num_bytes))
    assert np.isfinite(found.seconds).all()
    assert 1e-6 < found.latency_s + found.s_per_byte * 2**20 < 0.1


@pytest.mark.alone
def test_tiny_tensors_set_no_bandwidth():
    found = measured(small.tiny())
    assert found.num_bytes.min() < 100
    assert 1e-6 < found.latency_s + found.s_per_byte * 2**20 < 0.1  # at 0.6 MB/s it took 2 s


def test_chains_have_shapes_of_models():
    images = chains.chain_shapes(small.convolutions())
    assert {len(shape) for shape in images} == {4}
    assert (1, 16, 14, 14) in images
    shapes = chains.chain_shapes(small.diamond())
    assert all(len(shape) == 2 and shape[1] == 16 for shape in shapes)
    for found in (images, shapes):
        assert [4 * math.prod(shape) for shape in found[:3]] == [2**12, 2**20, 2**16]
