"""Memory of plug-ins: of this process, and as stand-ins of accelerators report it."""

import dataclasses
import platform
import types

import numpy as np
import pytest

from placement.runtime import devices
from placement.runtime.measurement.worker import device_memory
from placement.runtime.models import operations
from tests.runtime import small

HOST = devices.resolve("host")[0]
GPU = dataclasses.replace(HOST, name="GPU.0", host=False)
TENSOR_BYTES = 4 * 8 * 4  # of each tensor in `small.diamond` and `small.shared_constant`


def _stand_in(properties):
    """Returns a core whose device GPU.0 has properties."""

    def get_property(name, key):
        assert name == "GPU.0"
        return list(properties) if key == "SUPPORTED_PROPERTIES" else properties[key]

    return types.SimpleNamespace(get_property=get_property)


def test_the_memory_of_the_cpu_is_what_the_process_occupies():
    before_bytes = device_memory.read_used_bytes(None, HOST)
    array = np.ones(40_000_000, np.uint8)
    used_bytes = device_memory.read_used_bytes(None, HOST)
    assert used_bytes - before_bytes == pytest.approx(array.nbytes, rel=0.2)
    del array
    assert device_memory.read_used_bytes(None, HOST) < used_bytes - 30_000_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns freed memory")
def test_freed_memory_that_the_allocator_keeps_does_not_count():
    before_bytes = device_memory.read_used_bytes(None, HOST)
    # Blocks too small for mappings of their own. The last one keeps the heap from shrinking.
    blocks = [b"x" * 60_000 for _ in range(700)]
    assert device_memory.read_used_bytes(None, HOST) > before_bytes + 30_000_000
    del blocks[:-1]
    assert device_memory.read_used_bytes(None, HOST) < before_bytes + 10_000_000


@pytest.mark.parametrize(
    ("properties", "expected_bytes"),
    [
        ({"GPU_MEMORY_STATISTICS": {"cl_mem": 5, "usm_device": 30, "usm_host": 7}}, 42),
        ({"GPU_MEMORY_STATISTICS": {}}, 0),
        ({"NPU_DEVICE_ALLOC_MEM_SIZE": 12}, 12),
        ({"FULL_DEVICE_NAME": "an accelerator"}, None),
    ],
)
def test_an_accelerator_reports_its_memory_or_it_is_unknown(properties, expected_bytes):
    assert device_memory.read_used_bytes(_stand_in(properties), GPU) == expected_bytes


def test_tensors_are_alive_until_their_last_reader():
    model = small.diamond()
    # While the second of left and right runs, it reads top, and bottom is going to read the first.
    names = operations.computed_names(model)
    assert {*names[1:3]} == {"left", "right"}
    assert device_memory.peak_tensor_bytes(model, names) == 3 * TENSOR_BYTES
    assert device_memory.peak_tensor_bytes(model, ["left", "bottom"]) == 2 * TENSOR_BYTES
    assert device_memory.peak_tensor_bytes(model, []) == 0


def test_an_overhead_is_the_growth_beyond_constants_and_tensors():
    model = small.shared_constant()  # a matrix of 8 x 8 in f16, read twice
    growth_bytes, names = 10_000, operations.computed_names(model)
    matrix_bytes = 2 * 8 * 8
    on_gpu = device_memory.compute_overhead(model, GPU, names, growth_bytes)
    assert on_gpu == growth_bytes - matrix_bytes - 2 * TENSOR_BYTES
    part = device_memory.compute_overhead(model, GPU, ["first"], growth_bytes)
    assert part == growth_bytes - matrix_bytes - TENSOR_BYTES
    # The CPU shares constants with the model, and its process has all tensors.
    on_cpu = device_memory.compute_overhead(model, HOST, ["first"], growth_bytes)
    assert on_cpu == growth_bytes - 2 * TENSOR_BYTES
    assert device_memory.compute_overhead(model, GPU, names, 100) == 0
