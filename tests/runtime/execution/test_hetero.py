import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.execution import hetero
from tests.runtime import sample_models, small

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)


@pytest.fixture(scope="module")
def core():
    return small.open_core(HOST)


def labels(model: ov.Model) -> dict[str, str]:
    return {op.get_friendly_name(): op.get_rt_info()["affinity"] for op in model.get_ordered_ops()}


def assert_equal(core: ov.Core, model: ov.Model, compiled: ov.CompiledModel) -> None:
    """Compares the outputs of a compiled model with those of the CPU in f32."""
    shape = tuple(model.inputs[0].get_shape())
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x)[0]
    np.testing.assert_allclose(compiled(x)[0], expected, atol=0.05 * np.ptp(expected))


def submodels(compiled: ov.CompiledModel) -> int:
    return compiled.get_property("HETERO_NUMBER_OF_SUBMODELS")


def test_shared_constants_are_copied(core):
    model = small.shared_constant()
    affinity = small.everywhere(model, A, second=B)
    labelled = hetero.label_devices(model, affinity, [A, B])
    found = labels(labelled)
    assert found["unpack"] == found["matrix"] == A
    assert found[f"unpack@{B}"] == found[f"matrix@{B}"] == B
    ops = {op.get_friendly_name(): op for op in labelled.get_ops()}
    assert ops["second"].input_value(1).get_node().get_friendly_name() == f"unpack@{B}"
    compiled = hetero.compile_placement(core, model, affinity, HOST)
    assert submodels(compiled) == 2
    assert_equal(core, model, compiled)


def test_constant_results_are_labelled(core):
    model = small.diamond()
    constant = ov.opset13.constant(np.ones(3, np.float32), name="fixed")
    model.add_results([ov.opset13.result(constant, name="z")])
    affinity = small.everywhere(model, B)
    assert labels(hetero.label_devices(model, affinity, [A, B]))["z"] == A
    compiled = hetero.compile_placement(core, model, affinity, HOST)
    outputs = compiled(np.ones((4, 8), np.float32))
    np.testing.assert_array_equal(outputs[1], np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nonsense": A}, "'nonsense', not operations of the model"),
        ({"left": "TPU"}, "uses 'TPU'; its devices are"),
        ({"left": None}, "no device for 'left'"),
    ],
)
def test_wrong_affinities_are_refused(core, change, said):
    model = small.diamond()
    affinity = small.everywhere(model, A) | change
    affinity = {name: device for name, device in affinity.items() if device is not None}
    with pytest.raises(UserError, match=said) as caught:
        hetero.compile_placement(core, model, affinity, HOST)
    assert "\n" not in str(caught.value)


def test_separated_variables_are_refused(core):
    model = small.counter()
    for change in ({"write": B}, {"sum": B}):
        with pytest.raises(UserError, match="separates 'read', 'sum', 'write'"):
            hetero.compile_placement(core, model, small.everywhere(model, A, **change), HOST)


def test_cyclic_variables_are_refused(core):
    # The input and its product are on one device, another product is on the other.
    model = sample_models.cache()
    names = {op.get_friendly_name(): op.get_type_name() for op in model.get_ordered_ops()}
    product = next(name for name, kind in names.items() if kind == "MatMul")
    with pytest.raises(UserError, match="variable 'cache' depends on itself"):
        hetero.compile_placement(core, model, small.everywhere(model, A, **{product: B}), HOST)


def test_shared_constants_join_no_parts(core):
    source = ops.parameter([1, 8], np.float32, name="x")
    scalar, value = ops.constant(np.float32(0.5), name="half"), source
    for i in range(6):  # the scalar would join three parts on a device to one, and close cycles
        value = ops.tanh(ops.multiply(value, scalar, name=f"scale_{i}"), name=f"tanh_{i}")
    model = ov.Model([ops.result(value, name="y")], [source], "scaled")
    odd = {f"{kind}_{i}": B for kind in ("scale", "tanh") for i in (1, 3, 5)}
    compiled = hetero.compile_placement(core, model, small.everywhere(model, A, **odd), HOST)
    assert submodels(compiled) == 6
    assert_equal(core, model, compiled)
