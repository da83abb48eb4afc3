"""Reasons why a device cannot run operations: from a profile to the summary and the report."""

import json

import numpy as np
import openvino as ov
from click.testing import CliRunner

import placement
from placement import cli
from placement.costs import tables
from placement.costs.tables import DeviceProfile, Transfers
from placement.errors import UserError
from tests.runtime import small
from tests.runtime.models import test_support

REASON = {
    **{"device": "NPU", "name": "conv_1", "op_type": "Convolution"},
    **{"inputs": "f32[1,16,14,14], f32[16,16,3,3]", "reason": "too many channels"},
}


def test_reports_give_reasons(tmp_path):
    ov.save_model(small.convolutions(), tmp_path / "model.xml", compress_to_fp16=False)
    names = tuple(f"{kind}_{i}" for i in range(4) for kind in ("conv", "relu"))
    kernels = tuple(((name,), 1e-3) for name in names)
    profiles = (
        DeviceProfile("CPU [f32]", 8e-3, kernels, frozenset()),
        DeviceProfile("NPU [f16]", 7e-3, kernels[:2] + kernels[3:], frozenset({"conv_1"})),
    )
    no_transfers = Transfers(np.zeros((2, 2)), np.zeros((2, 2)))
    conditions = {"busy": None}
    saved = tables.to_json(profiles, no_transfers)
    saved |= {"reasons": [REASON], "key": "", "transfers": [], "conditions": conditions}
    (tmp_path / "costs.json").write_text(json.dumps(saved))
    placed = placement.place(
        tmp_path / "model.xml",
        workdir=tmp_path / "run",
        method="heft",
        evaluate="simulate",
        costs=str(tmp_path / "costs.json"),
    )
    assert placed.summary["unsupported"] == [REASON]
    text = (tmp_path / "run/report.md").read_text()
    assert "Operations that cannot run: 1 on NPU." in text
    assert "too many channels" in text
    assert "too many channels" in (tmp_path / "run/report.html").read_text()
    assert placed.placement["conv_1"] != "NPU"


def test_command_lists_counts_and_reasons(tmp_path):
    file = tmp_path / "refused.xml"
    ov.save_model(test_support.refused(), file, compress_to_fp16=False)
    result = CliRunner().invoke(cli.main, ["devices", str(file)])
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "refused on the devices here:"
    assert "2 of 3 operations cannot run" in lines[1]
    assert any("lrn_1" in line and test_support.REASON in line for line in lines[2:])
    result = CliRunner().invoke(cli.main, ["devices", "synthetic:ops=9"])
    assert isinstance(result.exception, UserError)
    assert "not a model that a device could run" in str(result.exception)
