"""Deployed models with dynamic inputs: shapes that were placed, others, and refusals."""

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact, shapes
from placement.runtime.execution.split import Segment
from placement.runtime.models import frontend
from tests.runtime.deployment.test_deploy import HOST, A, B

FORMS = (artifact.HETERO, artifact.CONCURRENT, artifact.SINGLE)
LARGEST = 16


def dynamic(*, least: int = 1, name: str = "x") -> ov.Model:
    """Two products of a batch of 1 to 16 rows, side by side, their sum and a reshaped view."""
    generator = np.random.default_rng(0)
    rows = ov.Dimension(least, LARGEST)
    source = ops.parameter(ov.PartialShape([rows, 8]), np.float32, name=name)

    def product(name: str) -> ov.Node:
        matrix = generator.standard_normal((8, 8)).astype(np.float32)
        return ops.matmul(source, ops.constant(matrix, name=f"m_{name}"), False, False, name=name)

    total = ops.add(product("left"), product("right"), name="sum")
    rows = ops.gather(ops.shape_of(total), np.array([0]), np.array(0))
    target = ops.concat([rows, ops.constant(np.array([2, 4]))], 0)
    result = ops.result(ops.reshape(total, target, False, name="view"), name="y")
    return ov.Model([result], [source], "dynamic")


def deployed(folder: Path, form: str, *, batch: int = 4, model: ov.Model | None = None) -> Path:
    """Deploys the model for one batch size, with 'right' on the other device."""
    named = frontend.name_operations(model or dynamic())
    name = named.inputs[0].get_node().get_friendly_name()
    placed = frontend.prepare(named, frontend.format_shapes({name: (batch, 8)}))
    affinity = dict.fromkeys((op.get_friendly_name() for op in placed.get_ops()), A)
    affinity = {name: device for name, device in affinity.items() if name != "y"} | {"right": B}
    segments = (Segment(A, (name, "left")), Segment(B, ("right",)), Segment(A, ("sum", "view")))
    alone = B if form == artifact.SINGLE else None
    has_segments = form == artifact.CONCURRENT
    folder.mkdir()
    artifact.save(
        artifact.Artifact(
            placed, affinity, segments if has_segments else (), HOST, form, alone, "", {}, named
        ),
        folder,
    )
    return folder


def plain(x: np.ndarray) -> np.ndarray:
    compiled = ov.Core().compile_model(dynamic(), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([x])[0]


@pytest.mark.parametrize("form", FORMS)
def test_five_batch_sizes_have_right_outputs(form, tmp_path):
    with artifact.load(deployed(tmp_path / "deploy", form)) as network:
        for batch in (1, 2, 4, 7, LARGEST, 1):
            x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
            (y,) = network.infer({"x": x})
            assert y.shape == (batch, 2, 4)
            np.testing.assert_allclose(y, plain(x), atol=0.1 * plain(x).std())
        assert all(check.refusal == "" for check in network.check_other_shapes())


@pytest.mark.parametrize("form", FORMS)
def test_empty_batch_equals_plain_openvino(form, tmp_path):
    model = dynamic(least=0)
    with artifact.load(deployed(tmp_path / "deploy", form, model=model)) as network:
        (y,) = network.infer({"x": np.zeros((0, 8), np.float32)})
        assert y.shape == (0, 2, 4)


def test_uncompilable_shape_is_one_line(tmp_path, monkeypatch):
    with artifact.load(deployed(tmp_path / "deploy", artifact.HETERO)) as network:

        def fail(_model: ov.Model) -> ov.CompiledModel:
            raise RuntimeError("Exception from src/a.cpp:1:\nobject is not initialized\n")

        monkeypatch.setattr(network._variants, "_compile", fail)
        said = r"for inputs of the shapes \[2, 8\]: object is not initialized; pass other shapes"
        with pytest.raises(UserError, match=said):
            network.infer({"x": np.zeros((2, 8), np.float32)})


@pytest.mark.parametrize("name", ["a;b", " a "])
def test_other_shapes_suit_any_name(name, tmp_path):
    model = dynamic(name=name)
    with artifact.load(deployed(tmp_path / "deploy", artifact.HETERO, model=model)) as network:
        assert network.infer({name: np.zeros((7, 8), np.float32)})[0].shape == (7, 2, 4)


def test_a_variant_is_compiled_once_and_runs_where_the_placement_says(tmp_path):
    folder, compiled = deployed(tmp_path / "deploy", artifact.HETERO), []
    with artifact.load(folder) as network:
        compile_model = network._variants._compile

        def counting(model: ov.Model) -> ov.CompiledModel:
            compiled.append(compile_model(model))
            return compiled[-1]

        network._variants._compile = counting
        for _ in range(2):
            network.infer([np.ones((2, 8), np.float32)])
        for batch in range(1, LARGEST + 1):  # drops that for two rows
            network.infer([np.ones((batch, 8), np.float32)])
    # The placed batch of 4 has no variant, and the one for two rows was still there.
    assert len(compiled) == LARGEST - 1
    assert all(model.get_property("HETERO_NUMBER_OF_SUBMODELS") > 1 for model in compiled)
    assert len(network._variants._runners) == 8


@pytest.mark.parametrize("form", FORMS)
def test_a_shape_outside_the_range_is_refused_in_one_line(form, tmp_path):
    with artifact.load(deployed(tmp_path / "deploy", form)) as network:
        for shape in ((LARGEST + 1, 8), (4, 9), (4,)):
            with pytest.raises(UserError, match=r"input 'x' has shape .*; pass \[1..16,8\]"):
                network.infer([np.ones(shape, np.float32)])
        with pytest.raises(UserError, match=r"submit serves only the shapes .*\[4, 8\]; call inf"):
            network.submit([np.ones((2, 8), np.float32)])
        assert network.submit([np.ones((4, 8), np.float32)]).result()[0].shape == (4, 2, 4)


def test_a_changed_or_missing_model_is_refused(tmp_path):
    folder = deployed(tmp_path / "deploy", artifact.HETERO)
    file = folder / shapes.DYNAMIC_FILE
    text = file.read_text()
    file.write_text(text.replace("left", "lift"))
    with pytest.raises(UserError, match="have changed since they were written; deploy it again"):
        artifact.load(folder)
    file.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        artifact.load(folder)


def test_a_variant_with_other_operations_is_refused(tmp_path):
    """With one row the broadcast of the batch is folded away, say; here the name differs."""
    folder = deployed(tmp_path / "deploy", artifact.HETERO)
    with artifact.load(folder) as network:
        model = frontend.name_operations(dynamic())
        next(op for op in model.get_ops() if op.get_friendly_name() == "left").set_friendly_name(
            "other"
        )
        network._variants.model = model
        with pytest.raises(UserError, match=r"does not fit these shapes: .*no device for 'other'"):
            network.infer([np.ones((2, 8), np.float32)])


def test_hetero_itself_refuses_a_dynamic_model_with_a_positive_lower_limit():
    """The reason for static variants; when this fails, OpenVINO may run dynamic models itself."""
    model = frontend.name_operations(dynamic())
    for op in model.get_ops():
        op.get_rt_info()["affinity"] = B if op.get_friendly_name() == "right" else A
    config = {"DEVICE_PROPERTIES": {device.name: dict(device.properties) for device in HOST}}
    compiled = devices.open_core(HOST).compile_model(model, f"HETERO:{A},{B}", config)
    with pytest.raises(RuntimeError, match="are incompatible"):
        compiled.create_infer_request()


def test_shapes_near_the_placed_ones_are_proposed():
    image = ov.PartialShape([ov.Dimension(1, 6), 3, -1])
    proposed = [*shapes.propose_shapes([image, ov.PartialShape([5])], ((4, 3, 10), (5,)))]
    assert proposed == [
        ((6, 3, 10), (5,)),
        ((5, 3, 10), (5,)),
        ((2, 3, 10), (5,)),
        ((6, 3, 20), (5,)),
        ((5, 3, 11), (5,)),
        ((2, 3, 5), (5,)),
    ]
    assert not [*shapes.propose_shapes([ov.PartialShape([5])], ((5,),))]
