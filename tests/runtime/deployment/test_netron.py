import tempfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import openvino as ov
import pytest

from placement.runtime.deployment import artifact, netron
from tests.runtime import small
from tests.runtime.deployment.test_deploy import A, B, saved


def _shown(text: bytes) -> dict[str, str | None]:
    """Layer name -> the device that a viewer shows."""
    layers = ElementTree.fromstring(text).findall("layers/layer")
    data = {layer.get("name"): layer.find("data") for layer in layers}
    return {n: None if d is None else d.get(netron.ATTRIBUTE) for n, d in data.items()}


def test_every_layer_shows_its_device_and_the_file_computes_what_it_did(tmp_path):
    model = small.convolutions(length=2)
    path = tmp_path / "model.xml"
    ov.save_model(model, path, compress_to_fp16=False)
    core = ov.Core()
    image = np.random.default_rng(0).standard_normal((1, 16, 14, 14)).astype(np.float32)
    before = core.compile_model(path, "CPU")(image)[0]
    affinity = small.everywhere(model, "CPU", relu_0="GPU.0")  # a ReLU has no <data>
    path.write_bytes(netron.annotate(path.read_bytes(), affinity))
    shown = _shown(path.read_bytes())
    assert shown["relu_0"] == "GPU.0"
    assert {shown[name] for name in ("conv_0", "conv_1", "relu_1")} == {"CPU"}
    np.testing.assert_array_equal(core.compile_model(path, "CPU")(image)[0], before)


def test_a_model_for_viewers_has_devices_and_no_weights():
    model = small.convolutions(length=1)
    shown = _shown(netron.annotated_xml(model, {"conv_0": "GPU.0", "relu_0": "CPU"}))
    assert (shown["conv_0"], shown["relu_0"], shown["x"]) == ("GPU.0", "CPU", None)


def test_what_is_deployed_shows_its_devices(tmp_path):
    for name, asked in (("split", {"form": artifact.HETERO}), ("one", {"form": artifact.SINGLE})):
        folder = tmp_path / name
        folder.mkdir()
        alone = A if name == "one" else None
        saved(folder, small.diamond(), alone=alone, left=B, **asked)
        shown = _shown((folder / artifact.MODEL_FILE).read_bytes())
        assert shown["left"] == (A if alone else B)
        assert shown["right"] == A


def test_a_model_for_viewers_is_written_to_regular_files_of_a_temporary_folder(
    tmp_path, monkeypatch
):
    """OpenVINO deletes its outputs after a write error: a device file must not be one of them."""
    outputs: list[Path] = []

    def failing(model: ov.Model, xml: Path, weights: Path) -> None:
        outputs.extend((xml, weights))
        raise RuntimeError("iostream error")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ov, "serialize", failing)
    with pytest.raises(OSError, match="MiB are free") as raised:
        netron.annotated_xml(small.convolutions(length=1), {})
    assert len(outputs) == 2
    assert {Path(output).parent.parent for output in outputs} == {tmp_path}
    assert Path(raised.value.filename).parent == tmp_path
    assert list(tmp_path.iterdir()) == []
