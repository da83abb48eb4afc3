"""Devices with limits of memory from the command line, on the real CPU plug-in."""

import functools
import json
import re

import numpy as np
import openvino as ov
import pytest

import placement
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import MEMORY_STAGE, Failure
from tests.experiments.command import run
from tests.runtime import small

_HETERO = ("--config.backend=hetero", "--config.objective=serial")
_CONCURRENT = ("--config.backend=concurrent", "--config.objective=makespan")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """Returns a model of six products with weights of 262,144 bytes each."""
    path = tmp_path_factory.mktemp("model") / "residual.xml"
    ov.save_model(small.residual(), path, compress_to_fp16=False)
    return path


@pytest.fixture(scope="module")
def profile(model_file, tmp_path_factory):
    """Returns the profile.json of a backend, which is made once; limits change no costs."""

    @functools.cache
    def make(backend):
        workdir = tmp_path_factory.mktemp("profile")
        flags = _flags(model_file, "host:f32,f32", *backend)
        code, _, err = run(workdir, *flags, "--config.method=random", "--config.evaluate=simulate")
        assert code == 0, err
        return workdir / "profile.json"

    return make


@pytest.fixture(scope="module")
def costs(profile):
    """Returns the flags of a backend with the costs of `profile`."""
    return lambda backend: (*backend, f"--config.costs={profile(backend)}")


@pytest.fixture(scope="module")
def needed_bytes(model_file, profile):
    """Returns the memory of the model on each device by a backend's profile, without tensors."""

    def add_overheads(backend):
        profiles = json.loads(profile(backend).read_text())["profiles"]
        size = model_file.with_suffix(".bin").stat().st_size
        return [size + device_profile["overhead_bytes"] for device_profile in profiles]

    return add_overheads


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


@pytest.mark.parametrize("backend", [_CONCURRENT, _HETERO])
def test_a_model_that_no_device_holds_is_placed_on_both_and_deployed(
    model_file, costs, needed_bytes, tmp_path, backend
):
    limit_bytes = round(0.6 * max(needed_bytes(backend)))
    assert limit_bytes > (model_file.with_suffix(".bin")).stat().st_size  # without the overhead
    flags = _flags(model_file, _limit_both(limit_bytes), *costs(backend))
    code, out, err = run(tmp_path, *flags)
    assert code == 0, err
    for name in ("CPU_F32_0", "CPU_F32_1"):
        beyond = rf"{name} needs [\d.]+ \wB beyond the model's 1.57 MB \(compiled kernels"
        assert re.search(beyond, " ".join(out.split())), out
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

    # The limits are known from the run, unless others are given.
    auto = [flag for flag in flags if not flag.startswith("--config.devices")]
    code, _, err = run(tmp_path, "--task=deploy", *auto)
    assert code == 0, err
    record = json.loads((tmp_path / "deploy" / "deploy.json").read_text())
    singles = {row["name"]: row for row in record["rows"] if row["form"] == "single"}
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

    code, _, err = run(
        tmp_path, "--task=deploy", *auto, "--config.devices=host:f32,f32:memory=100KB"
    )
    assert code == 2
    assert "the placement is out of memory: CPU_F32_1 needs " in err
    assert len(err.strip().splitlines()) == 1


def test_limits_that_hold_the_model_on_no_devices_are_said(model_file, costs, tmp_path):
    flags = _flags(model_file, _limit_both(100_000), *costs(_HETERO))
    code, _, err = run(tmp_path, *flags)
    assert code == 0, err
    summary = json.loads((tmp_path / "summary.json").read_text())
    rows = {row["method"]: row for row in summary["rows"]}
    assert re.search("infeasible: operations occupy .* bytes", rows["search"]["status"])
    assert summary["rows"][0]["measured_s"] is None
    assert not (tmp_path / "placement.json").exists()


def test_a_wrong_limit_is_one_line(model_file, tmp_path):
    code, _, err = run(tmp_path, *_flags(model_file, "host:memory=much"))
    assert code == 2
    assert "'much' in devices 'host:memory=much' is no size of a memory; give a number" in err
    assert len(err.strip().splitlines()) == 1


def test_saved_costs_keep_the_limits(model_file, tmp_path):
    flags = _flags(model_file, "host:f32,f32:memory=1MB", *_HETERO)
    code, _, err = run(tmp_path / "first", *flags)
    assert code == 0, err
    saved = json.loads((tmp_path / "first" / "profile.json").read_text())
    assert saved["capacity_bytes"] == [None, 1_000_000]
    code, _, err = run(
        tmp_path / "second",
        f"--config.graph={model_file}",
        f"--config.costs={tmp_path / 'first' / 'profile.json'}",
        "--config.evaluate=simulate",
        "--config.method=search",
        *_HETERO,
    )
    assert code == 0, err
    rows = json.loads((tmp_path / "second" / "summary.json").read_text())["rows"]
    status = {row["method"]: row["status"] for row in rows}
    assert status["single:CPU_F32_1"].startswith("failed: out of memory: CPU_F32_1 needs ")
    assert status["single:CPU_F32_0"] == "finished"
    # Other limits need no new profile.
    code, _, err = run(tmp_path / "first", *_flags(model_file, "host:f32,f32", *_HETERO))
    assert code == 0, err
    unlimited = json.loads((tmp_path / "first" / "profile.json").read_text())
    assert unlimited == {key: value for key, value in saved.items() if key != "capacity_bytes"}


def exhaust_the_first_device():
    """Makes CPU_F32_0 fail as a full GPU does where it gets more than three of six products."""
    measure_chunks = LocalMeasurer.measure_chunks
    cause = "out of memory during 'compile': [CPU_F32_0] Exceeded max size of memory"

    def is_full(candidate):
        if candidate.affinity is None:
            return candidate.devices[0].name == "CPU_F32_0"
        placed = [op for op, name in candidate.affinity.items() if name == "CPU_F32_0"]
        return sum(op.startswith("product_") for op in placed) > 3

    def measure_within_memory(self, request):
        full = {i for i, c in enumerate(request.candidates) if is_full(c)}
        for outcomes in measure_chunks(self, request):
            yield {
                i: Failure(MEMORY_STAGE, cause) if i in full else outcome
                for i, outcome in outcomes.items()
            }

    LocalMeasurer.measure_chunks = measure_within_memory


@pytest.mark.parametrize(("limit", "backend"), [("", _CONCURRENT), (":memory=100MB", _HETERO)])
def test_a_device_that_runs_out_of_memory_gets_a_lower_limit_and_the_search_goes_on(
    model_file, costs, needed_bytes, tmp_path, limit, backend
):
    # The second device holds a part of the model only, so that both are needed.
    needed = needed_bytes(backend)
    limit_bytes = round(0.65 * needed[1])
    flags = _flags(model_file, f"host:f32{limit},f32:memory={limit_bytes}B", *costs(backend))
    code, out, err = run(tmp_path, *flags, broken=exhaust_the_first_device)
    assert code == 0, err
    text = " ".join((out + err).split())
    needs = re.search(
        r"CPU_F32_0 ran out of memory where the placement of single:CPU_F32_0 needs ([\d.]+) MB",
        text,
    )
    # The overhead counts that is the largest of the devices with a limit.
    expected_bytes = max(needed) if limit else needed[1]
    assert float(needs[1]) == pytest.approx(expected_bytes / 1e6, rel=0.02)
    summary = json.loads((tmp_path / "summary.json").read_text())
    rows = {row["method"]: row for row in summary["rows"]}
    assert rows["single:CPU_F32_0"]["status"].startswith("failed: out of memory: CPU_F32_0 needs")
    assert rows["search"]["measured_s"] is not None, rows["search"]["status"]
    memory = summary["memory"]["CPU_F32_0"]
    assert memory["placement_bytes"] <= memory["capacity_bytes"] < memory["model_bytes"]
    placed = json.loads((tmp_path / "placement.json").read_text())["placement"]
    on_first = [op for op, name in placed.items() if name == "CPU_F32_0"]
    assert 2 <= sum(op.startswith("product_") for op in on_first) <= 3


def test_a_search_on_devices_starts_from_a_placement_that_fits(
    model_file, costs, needed_bytes, tmp_path
):
    limit_bytes = round(0.6 * max(needed_bytes(_HETERO)))
    measured = (*costs(_HETERO), "--config.evaluate=measure", "--config.budget=6")
    code, _, err = run(tmp_path, *_flags(model_file, _limit_both(limit_bytes), *measured))
    assert code == 0, err
    rows = json.loads((tmp_path / "summary.json").read_text())["rows"]
    (row,) = (row for row in rows if row["method"] == "search")
    assert row["measured_s"] is not None, row["status"]
    code, _, err = run(tmp_path, *_flags(model_file, _limit_both(100_000), *measured))
    assert code == 2
    assert "neither fits" in err


def test_a_profile_without_overheads_is_read_and_a_negative_one_is_one_line(
    model_file, profile, tmp_path
):
    saved = json.loads(profile(_HETERO).read_text())
    flags = ("--config.evaluate=simulate", "--config.method=random", "--config.budget=64")
    for device_profile in saved["profiles"]:
        del device_profile["overhead_bytes"]  # as in a file of an earlier version
    (tmp_path / "old.json").write_text(json.dumps(saved | {"capacity_bytes": [1_000_000] * 2}))
    costs = *_HETERO, *flags, f"--config.costs={tmp_path / 'old.json'}"
    code, _, err = run(tmp_path / "old", f"--config.graph={model_file}", *costs)
    assert code == 0, err
    (row, *_) = json.loads((tmp_path / "old" / "summary.json").read_text())["rows"]
    assert row["status"] == "failed: out of memory: CPU_F32_0 needs 1.57 MB of 1 MB"
    limited = _flags(model_file, _limit_both(1_000_000), *_HETERO, *flags[1:])
    code, out, err = run(tmp_path / "here", *limited, costs[-1])
    assert code == 0, err
    text = " ".join((out + err).split())
    assert "does not say how much memory the plug-in of CPU_F32_1 needs beyond the model's" in text
    saved["profiles"][1]["overhead_bytes"] = -1
    (tmp_path / "bad.json").write_text(json.dumps(saved))
    code, _, err = run(
        tmp_path / "bad",
        *(f"--config.graph={model_file}", *_HETERO, *flags),
        f"--config.costs={tmp_path / 'bad.json'}",
    )
    assert code == 2
    assert "bad.json' cannot be read: overhead_bytes is -1; give the profile.json of a run" in err
    assert len(err.strip().splitlines()) == 1
