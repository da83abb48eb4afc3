import numpy as np
import openvino as ov

from placement.runtime import devices
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import Profile
from placement.runtime.measurement.worker import kernels
from tests.runtime import small

HOST = devices.resolve("host")


def test_unnamed_nodes_join_their_reader():
    node = kernels.Node
    model = small.convolutions(length=2)
    nodes = [
        node(("x",), 0.0, ()),
        node((), 1.0, (0,)),  # a Reorder before the first convolution
        node(("conv_0", "relu_0"), 10.0, (1,)),
        node(("conv_1",), 20.0, (2,)),
        node(("conv_1", "relu_1"), 5.0, (3,)),  # shares an operation with the one before
        node((), 2.0, (4,)),  # a Convert at the end
    ]
    whole = dict(kernels.attribute(model, nodes, frozenset()))
    assert whole == {("x",): 0.0, ("conv_0", "relu_0"): 11.0, ("conv_1", "relu_1"): 27.0}
    without = dict(kernels.attribute(model, nodes, frozenset({"conv_1"})))
    assert ("conv_1", "relu_1") not in without


def test_unnamed_operations_join_their_reader():
    # A product with a bias runs under the name of the addition.
    ops = ov.opset13
    source = ops.parameter([64, 64], np.float32, name="x")
    matrix = ops.constant(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    bias = ops.constant(np.ones((1, 64), np.float32))
    product = ops.matmul(source, matrix, False, False, name="product")
    total = ops.add(product, bias, name="sum")
    model = ov.Model([ops.result(total, name="y")], [source], "bias")
    with LocalMeasurer(model, HOST) as opened:
        (found,) = opened.ask(Profile(HOST[:1]))
    (kernel,) = [names for names, _ in found.kernels if "sum" in names]
    assert set(kernel) == {"product", "sum"}


def test_names_with_commas_are_found():
    assert kernels.split_names("a,b,c,d,e", {"a", "b,c", "e"}) == ("a", "b,c", "e")
