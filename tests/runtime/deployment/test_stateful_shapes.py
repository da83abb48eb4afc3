"""A deployed decoder: prompts and single tokens share one state, in each form."""

from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from placement import zoo
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.execution.split import Segment
from placement.runtime.models import colocation, frontend
from placement.runtime.models.operations import constant_names

HOST = devices.resolve("host:f32,f32")
A, B = (device.name for device in HOST)
DECODER = "decoder:layers=2,hidden=32,heads=2,vocabulary=200,context=64"
FORMS = (artifact.HETERO, artifact.CONCURRENT, artifact.SINGLE)
PROMPT = np.random.default_rng(3).integers(0, 200, (1, 8))
NUM_TOKENS = 30


def split_in_two(model: ov.Model) -> dict[str, str]:
    """Returns a placement with the last layer and the output on the second device."""
    names = [op.get_friendly_name() for op in model.get_ordered_ops()]
    affinity = {
        name: B if name.startswith(("layer/1", "norm", "last", "output")) else A
        for name in names
        if name != "logits"
    }
    for group in colocation.colocated_groups(model):
        assert len({affinity[names[op]] for op in group}) == 1
    return affinity


def deployed(folder: Path, form: str) -> Path:
    """Deploys the decoder, placed for a prompt of 8 tokens."""
    named = frontend.name_operations(zoo.build(DECODER))
    placed = frontend.prepare(named, "ids:1,8")
    affinity = split_in_two(placed)
    ops = [op for op in affinity if op not in constant_names(placed)]
    segments = tuple(Segment(d, tuple(o for o in ops if affinity[o] == d)) for d in (A, B))
    alone = B if form == artifact.SINGLE else None
    folder.mkdir()
    artifact.save(
        artifact.Artifact(
            placed,
            affinity,
            segments if form == artifact.CONCURRENT else (),
            HOST,
            form,
            alone,
            "",
            {},
            named,
        ),
        folder,
    )
    return folder


def generate(network, prompt: np.ndarray, count: int) -> list[int]:
    """Generates tokens greedily from the initial state."""
    network.reset_state()
    ids, tokens = prompt, []
    for _ in range(count):
        (logits,) = network.infer([ids])
        tokens.append(int(logits.argmax()))
        ids = np.array([[tokens[-1]]])
    return tokens


def plain():
    """Returns plain OpenVINO with the methods of a network."""
    model = zoo.build(DECODER)
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()

    class Plain:
        reset_state = request.reset_state

        def infer(self, inputs):
            return [np.array(output) for output in request.infer(inputs).values()]

    return Plain()


@pytest.mark.parametrize("form", FORMS)
def test_tokens_equal_those_of_plain_openvino(form, tmp_path):
    expected = generate(plain(), PROMPT, NUM_TOKENS)
    assert len(set(expected)) > NUM_TOKENS / 2  # a decoder that repeats itself would hide errors
    with artifact.load(deployed(tmp_path / "deploy", form)) as network:
        assert network.form == form
        if form == artifact.HETERO:
            assert network.compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") > 1
        assert generate(network, PROMPT, NUM_TOKENS) == expected
        # A reset restores the initial state, whichever shapes came last.
        assert generate(network, PROMPT, NUM_TOKENS) == expected
        # A prompt may also come in pieces, of shapes that were not placed.
        network.reset_state()
        network.infer([PROMPT[:, :5]])
        (logits,) = network.infer([PROMPT[:, 5:]])
        assert logits.argmax() == expected[0]
        checks = network.check_other_shapes()
        assert [check.refusal for check in checks] == ["", ""]
        assert max(check.comparison.error for check in checks) < 1e-4


def test_a_lost_state_changes_the_tokens(tmp_path, monkeypatch):
    """The comparison above would notice a state that does not move from shape to shape."""
    monkeypatch.setattr("placement.runtime.deployment.service.copy_state", lambda *_: None)
    with artifact.load(deployed(tmp_path / "deploy", artifact.SINGLE)) as network:
        assert generate(network, PROMPT, NUM_TOKENS) != generate(plain(), PROMPT, NUM_TOKENS)
        assert max(check.comparison.error for check in network.check_other_shapes()) > 0.01


def test_simultaneous_requests_are_refused(tmp_path):
    with artifact.load(deployed(tmp_path / "deploy", artifact.HETERO)) as network:
        with pytest.raises(UserError, match="the model keeps a state") as caught:
            network.submit([PROMPT])
        assert "\n" not in str(caught.value)


def test_too_many_tokens_are_refused_with_the_range(tmp_path):
    message = r"input 'ids' has shape \[1, 65\]; pass \[1,1..64\]"
    folder = deployed(tmp_path / "deploy", artifact.SINGLE)
    with artifact.load(folder) as network, pytest.raises(UserError, match=message):
        network.infer([np.zeros((1, 65), np.int64)])
