"""`devices=precisions` from the command line, on the real CPU plug-in."""

import json

import numpy as np
import openvino as ov
import pytest

import placement
from placement.runtime import devices
from tests.experiments.command import run
from tests.runtime import small

_FLAGS = ("--config.method=graph_cut", "--config.measure_s=0.2")
_SERIAL = ("--config.backend=hetero", "--config.objective=serial")
_ON = f"--config.devices={devices.PRECISIONS}"
needs_bf16 = pytest.mark.skipif(
    "BF16" not in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"),
    reason="needs a processor that computes in bf16",
)


@needs_bf16
def test_wrong_bf16_is_placed(tmp_path):
    file = tmp_path / "offset.xml"
    ov.save_model(small.offset(), file, compress_to_fp16=False)
    flags = [f"--config.graph={file}", _ON, *_SERIAL, *_FLAGS]
    code, out, err = run(tmp_path / "run", *flags)
    assert code == 0, err
    assert "of their spread, over 0.1; other devices run " in " ".join((out + err).split())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (division,) = summary["divisions"]
    assert division["whole_error"] > division["max_error"] == 0.1
    assert division["error"] <= 0.1
    culprits = {op for culprit in division["culprits"] for op in culprit["ops"]}
    assert "mix" in culprits
    assert not culprits & {f"conv_{i}" for i in (0, 1, 4, 5)}
    rows = {row["method"]: row for row in summary["rows"]}
    assert "wrong output" in rows["single:CPU_BF16"]["status"]
    assert rows["single:CPU_F32"]["output_error"] < 1e-3
    assert rows["graph_cut"]["output_error"] <= 0.1
    assert sum(bool(row.get("reference")) for row in rows.values()) == 2
    for name in ("report.md", "report.html"):
        text = (tmp_path / "run" / name).read_text()
        assert "Operations kept off a device" in text
        assert "mix" in text
    placed = json.loads((tmp_path / "run" / "placement.json").read_text())
    assert placed["placement"]["mix"] == "CPU_F32"

    code, _, err = run(tmp_path / "run", "--task=deploy", *flags)
    assert code == 0, err
    page = (tmp_path / "run" / "deploy" / "deploy.md").read_text()
    assert "Operations kept off a device" in page
    x = np.random.default_rng(0).standard_normal((1, 16, 16, 16)).astype(np.float32)
    with placement.load(tmp_path / "run" / "deploy") as net:
        (found,) = net.infer([x])
    (expected,) = (
        ov.Core()
        .compile_model(ov.Core().read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])
        .values()
    )
    assert np.abs(found - expected).max() < 0.1 * np.ptp(expected)
