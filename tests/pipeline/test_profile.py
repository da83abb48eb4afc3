"""Profiling: its messages, and models that cannot be profiled."""

import json
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.pipeline import loading
from placement.pipeline.settings import Settings
from tests.experiments.command import check_summary, run
from tests.runtime import small

# Of as many placements as devices, a learned search takes no step, which it would have to compile.
QUICK = (
    *("--config.devices=host", "--config.method=annealing"),
    *("--config.budget=2", "--config.measure_s=0.1"),
    *("--config.backend=concurrent", "--config.objective=makespan"),
)


def test_profiles_are_complete_and_kept(tmp_path: Path) -> None:
    ov.save_model(small.tiny(length=2), tmp_path / "tiny.xml")
    flags = (f"--config.graph={tmp_path / 'tiny.xml'}", *QUICK)
    code, out, err = run(tmp_path, *flags, "--config.time_limit_s=0.01")
    assert code == 0, err
    check_summary(tmp_path)
    assert "transfer CPU_" in out
    assert " samples" in out
    conditions = json.loads((tmp_path / "environment.json").read_text())["profiling"]
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert conditions == profile["conditions"]
    assert min(conditions["seconds"], conditions["wall_s"]) > 0
    # Tiny tensors alone suggest 0.6 MB/s, at which a MiB would take 2 s; the fit has a limit.
    (transfer,) = profile["transfers"]
    assert transfer["latency_s"] + 2**20 * transfer["s_per_byte"] < 0.1
    assert min(transfer["bytes"]) < 100
    assert transfer["median_error"] <= transfer["p90_error"]

    code, out, err = run(tmp_path, *flags, "--config.time_limit_s=1", "--verbosity=1")
    assert code == 0, err
    assert "profiled before" in out


def test_models_of_constants_are_refused(tmp_path: Path) -> None:
    one = ops.constant(np.ones((2, 2), np.float32), name="one")
    model = ov.Model([ops.result(ops.add(one, one, name="two"), name="y")], [], "constants")
    ov.save_model(model, tmp_path / "constants.xml")
    with pytest.raises(UserError, match="use a model that computes something of its inputs"):
        loading.load_network(Settings(graph=str(tmp_path / "constants.xml")))
