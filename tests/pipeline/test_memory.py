"""Devices with limits of memory from the command line, on the real CPU plug-in."""

import json
import re

import numpy as np
import openvino as ov
import pytest

import placement
from tests import fakes
from tests.experiments.command import run
from tests.runtime import small

_HETERO = ("--config.backend=hetero", "--config.objective=serial")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """Returns a model of six products with weights of 262,144 bytes each."""
    path = tmp_path_factory.mktemp("model") / "residual.xml"
    ov.save_model(small.residual(), path, compress_to_fp16=False)
    return path


@pytest.fixture(scope="module")
def costs(model_file, tmp_path_factory):
    """Returns the flags of a profile that is made once; limits change no costs."""
    workdir = tmp_path_factory.mktemp("profile")
    flags = _flags(model_file, "host:f32,f32", *_HETERO)
    code, _, err = run(workdir, *flags, "--config.method=random", "--config.evaluate=simulate")
    assert code == 0, err
    return (*_HETERO, f"--config.costs={workdir / 'profile.json'}")


def _limit_both(limit_bytes):
    return f"host:f32:memory={limit_bytes}B,f32:memory={limit_bytes}B"


def _flags(model_file, devices, *flags):
    return [
        f"--config.graph={model_file}",
        f"--config.devices={devices}",
        "--config.measure_s=0.2",
        "--config.time_limit_s=1",
        "--config.budget=200",
        "--config.search_anyway=true",
        "--config.method=search",
        *flags,
    ]


def test_large_models_are_split(model_file, costs, tmp_path):
    limit_bytes = round(0.6 * model_file.with_suffix(".bin").stat().st_size)
    flags = _flags(model_file, _limit_both(limit_bytes), *costs)
    code, out, err = run(tmp_path, *flags)
    assert code == 0, err
    summary = json.loads((tmp_path / "summary.json").read_text())
    rows = {row["method"]: row for row in summary["rows"]}
    for name in ("single:CPU_F32_0", "single:CPU_F32_1", "hetero", "hetero_pipeline"):
        needs = r"failed: out of memory: CPU_F32_[01] needs [\d.]+ \wB of [\d.]+ \wB"
        assert re.fullmatch(needs, rows[name]["status"]), rows[name]["status"]
        assert rows[name]["measured_s"] is None
    for name in ("search", "fill_in_order", "split_by_memory"):
        assert rows[name]["measured_s"] is not None, rows[name]["status"]
        assert rows[name]["num_devices"] == 2
    assert "No single device has enough memory. Use " in " ".join(out.split())
    for memory in summary["memory"].values():
        assert 0 < memory["placement_bytes"] <= memory["capacity_bytes"] < memory["model_bytes"]
    assert "- memory of the best placement: CPU_F32_0 " in (tmp_path / "report.md").read_text()

    # The limits are known from the run.
    auto = [flag for flag in flags if not flag.startswith("--config.devices")]
    code, _, err = run(tmp_path, "--task=deploy", *auto)
    assert code == 0, err
    record = json.loads((tmp_path / "deploy" / "placement.json").read_text())
    singles = {row["method"]: row for row in record["rows"] if row["form"] == "single"}
    assert len(singles) == 2
    for row in singles.values():
        assert row["status"].startswith("out of memory: needs ")
    assert record["deployed"] not in singles
    model = ov.Core().read_model(model_file)
    x = np.random.default_rng(0).standard_normal(list(model.inputs[0].shape)).astype(np.float32)
    with placement.load(tmp_path / "deploy") as network:
        outputs = network.infer([x])
    for output, expected in zip(outputs, small.expected(model, [x]), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3 * np.ptp(expected))


def test_measured_searches_start_within_memory(model_file, costs, tmp_path):
    limit_bytes = round(0.6 * model_file.with_suffix(".bin").stat().st_size)
    measured = (*costs, "--config.evaluate=measure", "--config.budget=6")
    within = _flags(model_file, _limit_both(limit_bytes), *measured)
    code, _, err = run(tmp_path, *within, broken=fakes.install)
    assert code == 0, err
    rows = json.loads((tmp_path / "summary.json").read_text())["rows"]
    (row,) = (row for row in rows if row["method"] == "search")
    assert row["measured_s"] is not None, row["status"]
    too_small = _flags(model_file, _limit_both(100_000), *measured)
    code, _, err = run(tmp_path, *too_small, broken=fakes.install)
    assert code == 2
    assert "neither fits" in err
