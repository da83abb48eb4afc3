"""The example that runs a placement for one batch size with others."""

from pathlib import Path

import openvino as ov
import pytest
from openvino import opset13 as ops

from experiments.examples import batch_sizes
from placement.pipeline.python_api import Placed
from placement.pipeline.settings import Settings
from placement.runtime import devices
from placement.runtime.models import from_python, frontend

_NETWORK = "resnet:depth=18,size=32,width=25"


def _placed(model: ov.Model, workdir: Path) -> Placed:
    """Places the first half of the operations on one device, the rest on the other."""
    from_python.save(model, None, workdir / "model.xml")
    shapes = "images:4,3,32,32"
    names = [
        op.get_friendly_name()
        for op in frontend.prepare(
            frontend.load(str(workdir / "model.xml")), shapes
        ).get_ordered_ops()
        if op.get_type_name() != "Result"
    ]
    first, second = (device.name for device in devices.resolve("host"))
    half = len(names) // 2
    placement = dict.fromkeys(names[:half], first) | dict.fromkeys(names[half:], second)
    settings = Settings(graph=str(workdir / "model.xml"), devices="host", input_shapes=shapes)
    return Placed(placement, {}, workdir, settings)


def test_a_placement_on_two_devices_has_right_outputs_for_other_batch_sizes(tmp_path):
    model = batch_sizes.build(_NETWORK)
    folder = tmp_path / "deployed"
    folder.mkdir()
    batch_sizes.deploy(_placed(model, tmp_path), folder)
    runs = batch_sizes.run(model, folder, (1, 9))
    assert [entry.batch for entry in runs] == [1, 9]
    assert all(entry.is_correct for entry in runs), runs
    logits = model.outputs[0].get_node().input_value(0)
    negated = ov.Model([ops.result(ops.negative(logits))], model.get_parameters(), "negated")
    (entry,) = batch_sizes.run(negated, folder, (2,))
    assert not entry.is_correct


@pytest.mark.parametrize("is_correct", [True, False])
def test_wrong_outputs_end_with_exit_code_1(is_correct, capsys, monkeypatch):
    runs = [batch_sizes.Run(7, 0.25, is_correct)]
    placed = Placed({"x": "B", "y": "A", "z": "A"}, {}, Path(), Settings())
    monkeypatch.setattr(batch_sizes, "place", lambda *_: placed)
    monkeypatch.setattr(batch_sizes, "deploy", lambda *_: None)
    monkeypatch.setattr(batch_sizes, "run", lambda *_: runs)
    if is_correct:
        batch_sizes.main(_NETWORK)
    else:
        with pytest.raises(SystemExit) as caught:
            batch_sizes.main(_NETWORK)
        assert caught.value.code == 1
    first, second = capsys.readouterr().out.splitlines()
    assert "2 operations on A, 1 operations on B" in first
    verdict = "equal to plain OpenVINO" if is_correct else "wrong"
    assert second == f"batch   7: {verdict}, off by 0.25 of the outputs' spread"
