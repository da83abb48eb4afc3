"""What profiling costs, what it says, and models that leave it little to do."""

import json
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from tests.experiments.command import check_summary, run
from tests.runtime import small

BACKENDS = {
    "hetero": ("--config.backend=hetero", "--config.objective=serial"),
    "concurrent": ("--config.backend=concurrent", "--config.objective=makespan"),
}
QUICK = ("--config.devices=host", "--config.method=annealing", "--config.budget=100")
PROFILE = ("--task=profile", "--config.calibration_placements=4")


def saved(model: ov.Model, folder: Path) -> str:
    path = folder / f"{model.get_friendly_name()}.xml"
    ov.save_model(model, path)
    return f"--config.graph={path}"


def constants() -> ov.Model:
    """A sum of constants, and nothing else."""
    one = ops.constant(np.ones((2, 2), np.float32), name="one")
    return ov.Model([ops.result(ops.add(one, one, name="two"), name="y")], [], "constants")


def one_operation() -> ov.Model:
    source = ops.parameter([1, 4], np.float32, name="x")
    return ov.Model([ops.result(ops.sin(source, name="sine"), name="y")], [source], "one")


def profiled(workdir: Path) -> dict:
    return json.loads((workdir / "profile.json").read_text())


@pytest.mark.parametrize("backend", BACKENDS)
def test_tiny_tensors_do_not_make_handing_over_slow(backend: str, tmp_path: Path) -> None:
    flags = (saved(small.tiny(), tmp_path), *QUICK, *BACKENDS[backend], *PROFILE)
    code, out, err = run(tmp_path, *flags)
    assert code == 0, err
    (found,) = profiled(tmp_path)["transfers"]
    assert found["latency_s"] + 2**20 * found["s_per_byte"] < 0.1  # at 0.6 MB/s it took 2 s
    assert min(found["bytes"]) < 100
    assert max(found["bytes"]) == 2**20
    assert found["median_error"] <= found["p90_error"]
    assert "handing over CPU_" in out
    assert "half within" in out
    told = json.loads((tmp_path / "environment.json").read_text())["profiling"]
    assert told == profiled(tmp_path)["conditions"]
    assert 0 < told["seconds"] < told["limit_s"] > told["wall_s"]
    assert not told["left_out"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_profiling_ends_with_the_time_of_a_search_and_says_what_it_left_out(
    backend: str, tmp_path: Path
) -> None:
    flags = (saved(small.branches(size=512, length=6), tmp_path), *QUICK, *BACKENDS[backend])
    code, out, err = run(tmp_path, *flags, "--config.time_limit_s=0.01")
    assert code == 0, err
    assert "profiling was cut short at 0.01 s" in out
    assert "operations timed 1 times, not 5" in out
    check_summary(tmp_path)
    short = profiled(tmp_path)["conditions"]
    assert short["wall_s"] < 20  # of which starting OpenVINO takes most
    code, out, err = run(tmp_path, *flags, "--config.time_limit_s=40")
    assert code == 0, err
    assert "cut short" not in out
    assert not profiled(tmp_path)["conditions"]["left_out"]
    assert "profiling" in json.loads((tmp_path / "environment.json").read_text())


@pytest.mark.parametrize("task", ["place", "profile"])
def test_a_model_of_constants_alone_is_refused(task: str, tmp_path: Path) -> None:
    code, _, err = run(tmp_path, saved(constants(), tmp_path), *QUICK, f"--task={task}")
    assert code == 2
    assert "give a model that computes something of its inputs" in err


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_operation_is_placed_and_calibrated(backend: str, tmp_path: Path) -> None:
    flags = (saved(one_operation(), tmp_path), *QUICK, *BACKENDS[backend])
    code, _, err = run(tmp_path / "place", *flags)
    assert code == 0, err
    check_summary(tmp_path / "place")
    code, _, err = run(tmp_path / "profile", *flags, *PROFILE)
    assert code == 0, err
    for row in json.loads((tmp_path / "profile" / "fidelity.json").read_text())["rows"]:
        assert row["placements"] >= 1
        assert row["failed"] == 0
        assert row["median_error"] >= 0


def test_one_device_has_nothing_to_calibrate(tmp_path: Path) -> None:
    flags = (saved(small.tiny(), tmp_path), "--config.devices=CPU", *PROFILE)
    code, _, err = run(tmp_path, *flags)
    assert code == 2
    assert "devices='CPU'" in err
    assert "--config.devices=host" in err
