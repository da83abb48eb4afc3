"""Tests of `placement.runtime.models.from_python`, on real modules and functions."""

import logging

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import openvino as ov
import pytest

import placement
from placement.errors import UserError
from placement.runtime.models import extract, frontend

pytestmark = pytest.mark.usefixtures("no_reports")

_SEEDS = np.random.default_rng(0)


@pytest.fixture(scope="module")
def no_reports():
    """OpenVINO's converter reports its use, unless by CI, from a fork of this large process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CI", "true")
        yield


@pytest.fixture(scope="module")
def torch():
    """PyTorch, which takes seconds to import: not where tests are merely collected."""
    import torch

    return torch


@pytest.fixture(scope="module")
def models(torch):
    from tests.runtime import torch_models

    return torch_models


@pytest.fixture(scope="module")
def dynamic_program(torch, models):
    """A perceptron exported for any number of rows."""
    auto = torch.export.Dim.AUTO
    return models.exported(models.Perceptron, torch.zeros(2, 8), dynamic=({0: auto},))


def _normal(*shape):
    return _SEEDS.standard_normal(shape).astype(np.float32)


def _run(converted, *arrays):
    """What the plain CPU computes in f32."""
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(converted.model, "CPU", config).create_infer_request()
    request.infer([np.array(array) for array in arrays])
    return [np.array(tensor.data) for tensor in request.output_tensors]


def _check(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def _inputs(converted):
    return {port.any_name: tuple(port.shape) for port in converted.model.inputs}


def _message(*arguments, **keywords):
    """The single line of the ValueError that `graph_from` raises."""
    with pytest.raises(UserError) as caught:
        placement.graph_from(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# PyTorch modules.


@pytest.mark.parametrize(
    ("name", "examples", "operation"),
    [
        ("Convolutional", {"images": _normal(1, 3, 8, 8)}, "__module.body.2/aten::gelu/Gelu"),
        (
            "Transformer",
            {"ids": np.array([[4, 9], [7, 0]]), "mask": np.array([[1, 1], [1, 0]])},
            "__module.embed/aten::embedding/Gather",
        ),
    ],
    ids=["convolutional", "transformer"],
)
def test_module_computes_the_same(torch, models, name, examples, operation):
    module = models.seeded(getattr(models, name))
    tensors = {key: torch.from_numpy(array) for key, array in examples.items()}
    converted = placement.graph_from(module, tensors)
    assert _inputs(converted) == {key: array.shape for key, array in examples.items()}
    assert converted.graph.name == name
    assert operation in converted.graph.op_names  # named after its submodule
    with torch.no_grad():
        expected = module.eval()(**tensors)
    _check(_run(converted, *examples.values()), [expected.numpy()])


def test_arguments_may_be_nested(models):
    module = models.seeded(models.Nested)
    x, pair, v, scale = _normal(2, 3), (_normal(2, 1), _normal(3)), _normal(1), _normal(1)
    examples = {"x": x, "pair": pair, "batch": {"v": v}, "times": 3, "shift": True, "scale": scale}
    converted = placement.graph_from(module, examples)
    assert _inputs(converted) == {
        "x": (2, 3), "pair.0": (2, 1), "pair.1": (3,), "batch.v": (1,), "scale": (1,),
    }  # fmt: skip
    weight, bias = (p.detach().numpy() for p in module.project.parameters())
    total = ((x @ weight.T + bias) * 3 + pair[0] - pair[1] + 1) * scale
    _check(_run(converted, x, *pair, v, scale), [total, v * 2])


def test_module_is_restored(torch, models):
    module = models.seeded(models.Perceptron).train()
    module.second.eval()
    state = {key: value.clone() for key, value in module.state_dict().items()}
    placement.graph_from(module, (torch.zeros(2, 8),))
    message = _message(module, (torch.zeros(2, 7),))
    assert "PyTorch module Perceptron cannot be traced" in message
    assert "mat1 and mat2 shapes cannot be multiplied" in message
    assert [part.training for part in module.modules()] == [True, True, True, False]
    assert "forward" not in vars(module)
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(value, state[key]) for key, value in module.state_dict().items())


def test_later_training_changes_nothing(torch, models):
    x = _normal(2, 8)
    module = models.seeded(models.Perceptron).eval()
    program = torch.export.export(module, (torch.from_numpy(x),))
    both = [placement.graph_from(module, torch.from_numpy(x)), placement.graph_from(program)]
    (before,) = _run(both[0], x)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert np.abs(before).max() > 0.01
    for converted in both:
        _check(_run(converted, x), [before])


def test_saved_model_is_the_same(models, tmp_path):
    ids = np.array([[3, 1, 4, 1]])
    examples = (ids, np.ones_like(ids))
    module = models.seeded(models.Transformer)
    converted = placement.graph_from(module, examples)
    assert placement.graph_from(module, examples).graph.op_names == converted.graph.op_names
    converted.save(tmp_path / "model.xml")
    model = frontend.prepare(frontend.load(str(tmp_path / "model.xml")))
    graph = extract.op_graph(model, name="model").graph
    assert graph.op_names == converted.graph.op_names
    np.testing.assert_array_equal(graph.flops, converted.graph.flops)
    _check(_run(converted._replace(model=model), *examples), _run(converted, *examples))


# Exported programs.


def test_program_takes_other_shapes(torch, models, dynamic_program):
    assert _inputs(placement.graph_from(dynamic_program)) == {"features": (2, 8)}
    x = _normal(5, 8)
    converted = placement.graph_from(dynamic_program, input_shapes="features:5,8")
    assert _inputs(converted) == {"features": (5, 8)}
    with torch.no_grad():
        expected = models.seeded(models.Perceptron).eval()(torch.from_numpy(x))
    _check(_run(converted, x), [expected.numpy()])
    assert "contains its own examples" in _message(dynamic_program, {"features": x})


def test_first_input_may_be_unread(torch, models):
    converted = placement.graph_from(models.exported(models.Second, torch.ones(2), torch.ones(3)))
    assert _inputs(converted) == {"x": (3,)}
    _check(_run(converted, np.ones(3, np.float32)), [np.full(3, 2, np.float32)])


# JAX functions.


class _Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        x += nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
        return nn.softmax(x + nn.Dense(8)(nn.gelu(nn.Dense(16)(x))))


class _Convolutional(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(8, (3, 3), 2)(images)))
        x = nn.gelu(nn.Conv(8, (3, 3), feature_group_count=4)(nn.max_pool(x, (2, 2))))
        return nn.Dense(4)(nn.avg_pool(x, (2, 2)).mean((1, 2)))


@pytest.mark.parametrize(
    ("module", "example"),
    [
        (_Convolutional(), _normal(1, 16, 16, 3)),
        (_Attention(), _normal(1, 5, 8)),
    ],
    ids=["convolutional", "attention"],
)
def test_bound_flax_module_is_converted(module, example):
    parameters = jax.jit(module.init)(jax.random.key(0), example)
    bound = module.bind(parameters)
    converted = placement.graph_from(bound, (example,))
    assert list(_inputs(converted).values()) == [example.shape]
    assert converted.model.outputs[0].names == {"jaxpr_outvar_0"}
    _check(_run(converted, example), [np.asarray(jax.jit(module.apply)(parameters, example))])


def test_calls_are_inlined():
    @jax.checkpoint
    def layer(x, scale):
        return jax.nn.relu(x) * jnp.sin(jnp.arange(3.0)) * scale

    def network(batch, flag, **others):
        return layer(batch["x"], others["scale"]) if flag else batch["x"]

    x, scale = _normal(2, 3), _normal(1)
    converted = placement.graph_from(network, {"batch": {"x": x}, "flag": True, "scale": scale})
    assert _inputs(converted) == {"batch.x": (2, 3), "scale": (1,)}
    _check(_run(converted, x, scale), [np.asarray(layer(x, scale))])


def _dilated(x):
    kernel = jnp.ones((2, 1, 3, 3))
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", rhs_dilation=(2, 2))


@pytest.mark.parametrize(
    ("function", "example", "said"),
    [
        (lambda x: jnp.cumsum(jnp.sort(x)), _normal(4), "no rule for cumsum, sort"),
        (lambda x: x.astype(jnp.bfloat16) * 2, _normal(4), "Unsupported data type: bfloat16"),
        (_dilated, _normal(1, 1, 8, 8), "a model with other outputs"),
        (lambda x: x @ jnp.ones((3, 3)), _normal(4), "cannot be traced on its example inputs"),
        (lambda x, y: x + y, _normal(4), "missing a required argument: 'y'"),
        (lambda x: x, None, "without example_inputs"),
    ],
)
def test_unconvertible_function_is_refused(function, example, said):
    message = _message(function, example)
    assert "JAX function" in message
    assert said in message


# Errors.


def test_other_objects_are_refused():
    for model in ("model.pt", None):
        message = _message(model, (jnp.ones(2),))
        assert f"an object of type {type(model).__name__} is not a model; pass" in message
        assert "pip install torch" in message


def test_unconvertible_module_is_refused(torch, models, caplog):
    caplog.set_level(logging.INFO)
    before = logging.root.level, list(logging.root.handlers), list(logging.root.filters)
    message = _message(models.Unconvertible(), (torch.eye(3),))
    assert "PyTorch module Unconvertible cannot be converted: OpenVINO has no rule for" in message
    assert "aten::linalg_svd" in message
    assert "ONNX" in message
    assert before == (logging.root.level, logging.root.handlers, logging.root.filters)


def test_scripted_modules_are_refused(torch, models):
    module = models.seeded(models.Perceptron)
    assert "pass the torch.nn.Module that it was made from" in _message(torch.jit.script(module))
    assert "its arguments are features: pass a tuple" in _message(module)
