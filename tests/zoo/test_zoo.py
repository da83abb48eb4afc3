"""The zoo's networks: exact sizes, compressed weights, outputs that depend on the input."""

import hashlib
import itertools

import numpy as np
import openvino as ov
import pytest

from placement import zoo
from placement.errors import UserError

SMALL_BERT = "bert:layers=2,hidden=64,heads=4,length=16,batch=2"
SMALL_INCEPTION = "inception_v3:size=149,width=50,early=1,middle=1,late=1"
SMALL_RESNET = "resnet:depth=18,width=25,size=64,batch=2"
SMALL_NMT = "nmt:layers=3,steps=3,batch=4,hidden=32,vocabulary=50"
SMALL_RNNLM = "rnnlm:steps=3,batch=4,hidden=32,vocabulary=50"
SMALL_DECODER = "decoder:layers=2,hidden=32,heads=2,vocabulary=50,context=64"
# Operations, edges, and operations without constants and their Converts.
SIZES = {
    "bert_base": (1009, 1068, 444),
    "inception_v3": (728, 764, 325),
    "resnet50": (396, 411, 178),
    "two_stream": (797, 828, 359),
    SMALL_BERT: (209, 218, 94),
    SMALL_DECODER: (240, 253, 112),
    SMALL_INCEPTION: (345, 361, 154),
    SMALL_NMT: (378, 517, 297),
    SMALL_RESNET: (158, 165, 72),
    SMALL_RNNLM: (128, 170, 99),
}
# Of the networks before they took sizes: a digest of their names, types, shapes and connections,
# and the summed magnitudes of every 101st number of each weight.
DEFAULTS = {
    "bert_base": ("1ad6314bb1015975", 98124.58),
    "inception_v3": ("95ad87cd08963fbc", 11038.31),
    "resnet50": ("5a86694f0c1d1831", 9158.62),
    "two_stream": ("b3bcd0f2e9219fd5", 12823.86),
}


@pytest.fixture(scope="module", params=sorted(SIZES))
def network(request) -> tuple[str, ov.Model]:
    return request.param, zoo.build(request.param)


def _is_constant_part(op: ov.Node) -> bool:
    kind = op.get_type_name()
    return kind == "Constant" or (
        kind == "Convert" and op.input_value(0).get_node().get_type_name() == "Constant"
    )


def _constants(model: ov.Model) -> list[ov.Node]:
    return [op for op in model.get_ops() if op.get_type_name() == "Constant"]


def _structure(model: ov.Model) -> str:
    lines = [
        f"{op.get_friendly_name()} {op.get_type_name()} "
        f"{[list(out.shape) for out in op.outputs()]} "
        f"{[value.get_node().get_friendly_name() for value in op.input_values()]}"
        for op in model.get_ops()
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def _compile(model: ov.Model) -> ov.CompiledModel:
    return ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def test_sizes_are_exact(network):
    name, model = network
    ops = model.get_ops()
    edges = sum(len(op.inputs()) for op in ops)
    computing = sum(not _is_constant_part(op) for op in ops)
    assert (len(ops), edges, computing) == SIZES[name]


@pytest.mark.parametrize("network", DEFAULTS, indirect=True)
def test_default_networks_are_frozen(network):
    name, model = network
    structure, magnitude = DEFAULTS[name]
    assert model.get_friendly_name() == name
    assert _structure(model) == structure
    floats = [op.data for op in _constants(model) if op.get_element_type().is_real()]
    total = sum(np.abs(data.ravel()[::101]).sum(dtype=np.float64) for data in floats)
    assert total == pytest.approx(magnitude, rel=1e-4)


def test_float_constants_are_compressed(network):
    _, model = network
    floats = [
        op
        for op in _constants(model)
        if op.get_element_type().is_real() and 0 not in list(op.get_output_shape(0))
    ]
    assert floats
    for constant in floats:
        assert constant.get_element_type() == ov.Type.f16
        (target,) = constant.output(0).get_target_inputs()
        convert = target.get_node()
        assert convert.get_type_name() == "Convert"
        assert convert.get_element_type() == ov.Type.f32
        assert "decompression_0" in convert.get_rt_info()


@pytest.mark.parametrize("network", [SMALL_BERT, SMALL_INCEPTION, SMALL_RESNET], indirect=True)
def test_outputs_depend_on_inputs(network):
    _, model = network
    compiled = _compile(model)
    runs = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        draw = {  # a normal image, or random words in one segment of full length
            "images": lambda shape, rng=rng: rng.standard_normal(shape, dtype=np.float32),
            "input_ids": lambda shape, rng=rng: rng.integers(0, 30522, shape),
            "attention_mask": lambda shape: np.ones(shape, dtype=np.int64),
            "token_type_ids": lambda shape: np.zeros(shape, dtype=np.int64),
        }
        inputs = {port.any_name: draw[port.any_name](list(port.shape)) for port in model.inputs}
        result = compiled(inputs)
        runs.append([np.array(result[port.any_name]).ravel() for port in model.outputs])
    for output in zip(*runs, strict=True):
        assert all(0.3 < values.std() < 3.0 for values in output)
        for one, two in itertools.combinations(output, 2):
            assert np.corrcoef(one, two)[0, 1] < 0.95


def test_graphs_without_weights():
    drawn, undrawn = (zoo.build(SMALL_NMT, weights=weights) for weights in (True, False))
    assert _structure(undrawn) == _structure(drawn)
    assert not any(op.data.any() for op in _constants(undrawn) if op.get_element_type().is_real())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resnet51", f"resnet51.*{', '.join(zoo.names())}"),
        ("rnnlm:depth=2", "unknown argument 'depth'.* layers=2, steps=35, batch=64, hidden=2048"),
        ("rnnlm:layers=0", "gives layers as '0'"),
        ("nmt:layers", "KEY=VALUE"),
        ("decoder:hidden=33,heads=2", "a multiple of heads, such as 34"),
    ],
)
def test_wrong_texts_are_refused(text, said):
    with pytest.raises(UserError, match=said) as error:
        zoo.build(text)
    assert "\n" not in str(error.value)


def test_decoder_attends_earlier_tokens():
    """A prompt at once, in pieces, and token by token gives the same logits."""
    request = _compile(zoo.build(SMALL_DECODER)).create_infer_request()
    prompt = np.random.default_rng(0).integers(0, 50, (1, 12))
    logits = []
    for sizes in ([12], [5, 7], [1] * 12):
        request.reset_state()
        for piece in np.split(prompt, np.cumsum(sizes)[:-1], axis=1):
            result = request.infer([piece])[0].copy()
        logits.append(result)
    np.testing.assert_allclose(logits[1:], [logits[0]] * 2, atol=1e-4)
    assert 0.3 < logits[0].std() < 3.0
    request.reset_state()
    changed = np.concatenate([(prompt[:, :1] + 1) % 50, prompt[:, 1:]], axis=1)
    assert np.abs(request.infer([changed])[0] - logits[0]).max() > 0.01  # the first token counts
