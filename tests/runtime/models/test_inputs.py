"""What models are run with: drawn, given by value, read from files; and what is found on them."""

import re

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.measurement import local
from placement.runtime.measurement.request import (
    Candidate,
    Failure,
    Measure,
    Measurement,
    OutputErrors,
)
from placement.runtime.models import frontend, inputs, outputs
from tests.runtime import small

HOST = devices.resolve("host:f32,f32")


def takes(**types: type) -> ov.Model:
    """Inputs of shape [2, 2]."""
    given = [ops.parameter([2, 2], dtype, name=name) for name, dtype in types.items()]
    for parameter in given:
        parameter.output(0).set_names({parameter.get_friendly_name()})
    return ov.Model([ops.result(x) for x in given], given, "takes")


def refusal(*args, **how) -> str:
    with pytest.raises(UserError) as caught:
        inputs.load_inputs(*args, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_values_replace_draws():
    model = takes(x=np.float32, n=np.int64, s=ov.Type.string)
    drawn = inputs.load_inputs(model, seed=3)
    assert len(drawn.samples) == len(frontend.FLOATS)
    for array, expected in zip(drawn.samples[0], frontend.example_inputs(model, 3), strict=True):
        np.testing.assert_array_equal(array, expected)
    floats = "normal, uniform in [0, 1), uniform in [-1, 1)"
    assert (drawn.description, drawn.key) == (f"3 draws of seed 3: floats {floats}", "")
    found = inputs.load_inputs(model, seed=3, values="n:3,4,5,6; s:ab")
    for (number, counts, words), before in zip(found.samples, drawn.samples, strict=True):
        np.testing.assert_array_equal(number, before[0])
        np.testing.assert_array_equal(counts, [[3, 4], [5, 6]])
        assert counts.dtype == np.int64
        assert words.tolist() == [["ab", "ab"], ["ab", "ab"]]
    assert found.key != inputs.load_inputs(model, values="n:3;s:ab").key
    assert "input_values n:3,4,5,6; s:ab" in found.description


def test_values_may_be_ranges():
    wide = ops.parameter([40, 40], np.float32, name="x")
    model = ov.Model([ops.result(wide)], [wide], "wide")
    for values in ("x:-2..254.5", "-2..254.5"):
        for (array,) in inputs.load_inputs(model, values=values).samples:
            assert -2 <= array.min() < 0
            assert 250 < array.max() < 254.5
    (first, *_), *_ = inputs.load_inputs(takes(n=np.int8), values="3..4").samples
    assert set(first.flat) <= {3, 4}
    for text, value in (("false", False), ("1", True)):
        samples = inputs.load_inputs(takes(k=ov.Type.boolean), values=text).samples
        assert samples[0][0].tolist() == [[value] * 2] * 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("x9:3", "'x9', which is not an input"),
        ("x1", "malformed entry 'x1'"),
        ("x1:many", "'many', not of its type int64"),
        ("x1:1,2,3", r"3 values, but its shape is \[2, 2\]; set one for all, or 4"),
        ("x1:4..2", r"the range 4\.\.2; a range is of numbers, the lower first"),
        ("s:a..b", r"the range a\.\.b; a range is of numbers"),
    ],
)
def test_malformed_values_are_refused(values, said):
    assert re.search(said, refusal(takes(x1=np.int64, s=ov.Type.string), values=values))


def test_inputs_are_read_from_files(tmp_path):
    model, file = takes(x=np.float32, n=np.int64), str(tmp_path / "real.npz")
    images = np.arange(12, dtype=np.float64).reshape(3, 2, 2)
    np.savez(file, x=images, n=np.full((2, 2), 7, np.int32))
    found = inputs.load_inputs(model, file=file)
    assert found.description == f"3 of {file}"
    for sample, image in zip(found.samples, images, strict=True):
        np.testing.assert_array_equal(sample[0], image)
        np.testing.assert_array_equal(sample[1], np.full((2, 2), 7))
        assert [array.dtype for array in sample] == [np.float32, np.int64]
    np.savez(file, x=np.zeros((20, 2, 2)))
    rest = inputs.load_inputs(model, file=file, values="n:5")
    assert len(rest.samples) == inputs.MAX_SAMPLES
    assert rest.samples[0][1].tolist() == [[5, 5]] * 2


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"x": np.zeros((2, 2))}, "lacks n [2,2]; add"),
        ({"x": np.zeros((2, 3))}, "'x' with the shape [2, 3]; the model takes [2, 2]"),
        ({"n": np.zeros((2, 2))}, "'n' is float64; pass an array of int64"),
        ({"x": np.zeros((2, 2, 2)), "n": np.zeros((3, 2, 2), int)}, "2 and 3 samples"),
        ({"x": np.array([["a", None]] * 2)}, "is not an .npz of arrays"),
        ({"x": np.ones((2, 2)), "n": np.full((2, 2), 2**63, np.uint64)}, "contains 9223372036854"),
    ],
)
def test_unfit_arrays_are_refused(tmp_path, stored, said):
    np.savez(tmp_path / "real.npz", **stored)
    model = takes(x=np.float32, n=np.int64)
    assert said in refusal(model, file=str(tmp_path / "real.npz"))


@pytest.mark.parametrize(
    ("element_type", "value", "said"),
    [
        ("string", [1.5], "is float64; pass an array of strings"),
        ("string", np.array(["a", 1], object), "is object; pass an array of strings"),
        ("string", np.array(["\ud800"]), "which UTF-8 cannot encode"),
        ("f32", ["a"], "is <U1; pass an array of float32"),
        ("f32", None, "is object; pass an array of float32"),
        ("f32", np.ma.array([1.0, 2.0], mask=[True, False]), "is a masked array"),
        ("f16", [1e6], "has numbers beyond 65504.0, the largest float16"),
        ("i32", [1.5], "is float64; pass an array of int32"),
        ("i32", np.array([5, 2**31]), "contains 2147483648; pass int32, from -2147483648"),
        ("u8", np.array([256]), "contains 256; pass uint8, from 0 to 255"),
    ],
)
def test_other_types_are_refused(element_type, value, said):
    with pytest.raises(UserError, match=r"^input 'x' ") as caught:
        inputs.convert(value, getattr(ov.Type, element_type), "input 'x'")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_suitable_values_are_converted():
    for value in (
        ["ä", ""],
        np.array(["", "ä"])[::-1],
        np.array(["ä", ""], object),
        np.array(["ä", ""], ">U1"),
        np.array(["ä", ""], np.dtypes.StringDType()),
        np.array(["ä".encode(), b""], object),
    ):
        tensor = ov.Tensor(inputs.convert(value, ov.Type.string, "input 'x'"))
        assert tensor.str_data.tolist() == ["ä", ""]
    for value in (np.array([0, 255]), np.array([0, 255], np.int32), [0, 255]):
        assert inputs.convert(value, ov.Type.u8, "x").tolist() == [0, 255]
    assert inputs.convert([], ov.Type.i32, "x").dtype == np.int32


def test_other_files_are_refused(tmp_path):
    file = tmp_path / "real.npz"
    assert "npz" in refusal(takes(x=np.float32), file=str(file))
    for content in (b"", b"no archive", b"PK\x03\x04"):
        file.write_bytes(content)
        assert "npz" in refusal(takes(x=np.float32), file=str(file))


@pytest.mark.skipif(
    "BF16" not in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"),
    reason="needs a processor that computes in bf16",
)
def test_all_inputs_are_checked():
    model = small.rounded()
    (device,) = devices.resolve("host:bf16")
    right, wrong = (inputs.load_inputs(model, values=text) for text in ("-99..99", "0..1"))
    mixed = right._replace(samples=(*right.samples, *wrong.samples[:1]))
    request = Measure([Candidate(None, (device,))], min_rounds=6, time_limit_s=0.0)
    outcomes = []
    for given in (right, mixed):
        with local.LocalMeasurer(model, [device], inputs=given) as measurer:
            outcomes += measurer.ask(request)
    assert isinstance(outcomes[0], Measurement)
    assert isinstance(outcomes[1], Failure)
    assert outcomes[1].stage == "wrong output"


def test_keys_contain_inputs_and_errors():
    model = small.diamond()
    given = [inputs.load_inputs(model, max_error=limit) for limit in (0.0, 0.25)]
    given.append(inputs.load_inputs(model, values="0..1"))
    fingerprints = set()
    for sample in (*given, given[0]):
        with local.LocalMeasurer(model, HOST, inputs=sample) as measurer:
            fingerprints.add(measurer.fingerprint)
            if sample is given[1]:
                assert measurer.ask(OutputErrors(HOST))[0].tolerance == 0.25
    assert len(fingerprints) == len({sample.key for sample in given}) == 3
    assert outputs.tolerance(HOST) == outputs.TOLERANCES["f32"]
