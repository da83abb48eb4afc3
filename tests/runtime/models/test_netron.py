"""A model file for viewers, with the device of each operation."""

import tempfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.runtime.models import serialization
from tests.runtime import small


def read_shown(text: bytes) -> dict[str, str | None]:
    """Returns the device that a viewer shows, by layer."""
    layers = ElementTree.fromstring(text).findall("layers/layer")
    data = {layer.get("name"): layer[0] for layer in layers if layer[0].tag == "data"}
    return {name: element.get("device") for name, element in data.items()}


def test_every_layer_shows_its_device():
    source = ops.parameter([2], np.float32, name="x")
    name = 'a\x01 "b"\n<c> &#7; \ufffe'
    value = ops.softmax(ops.relu(source, name=name), 0, name="softmax")  # a ReLU has no <data>
    model = ov.Model([ops.result(value)], [source], "names")
    shown = read_shown(serialization.annotate(model, {name: "CPU", "softmax": "GPU.0"}))
    assert shown['a\\x01 "b"\n<c> &#7; \\ufffe'] == "CPU"
    assert (shown["softmax"], shown["x"]) == ("GPU.0", None)


def test_write_errors_delete_no_device(tmp_path, monkeypatch):
    """OpenVINO deletes its outputs after a write error: a device file must not be one of them."""
    outputs: list[Path] = []

    def fail(model: ov.Model, xml: Path, weights: Path) -> None:
        outputs.extend((xml, weights))
        raise RuntimeError("iostream error")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ov, "serialize", fail)
    with pytest.raises(OSError, match="MiB are free") as raised:
        serialization.annotate(small.convolutions(length=1), {})
    assert {Path(output).parent.parent for output in outputs} == {tmp_path}
    assert Path(raised.value.filename).parent == tmp_path
    assert list(tmp_path.iterdir()) == []
