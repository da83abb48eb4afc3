import math

from placement.runtime.measurement.worker import chains
from tests.runtime import small


def test_chains_have_shapes_of_models():
    images = chains.chain_shapes(small.convolutions())
    assert {len(shape) for shape in images} == {4}
    assert (1, 16, 14, 14) in images
    shapes = chains.chain_shapes(small.diamond())
    assert all(len(shape) == 2 and shape[1] == 16 for shape in shapes)
    for found in (images, shapes):
        assert [4 * math.prod(shape) for shape in found[:3]] == [2**12, 2**16, 2**20]
