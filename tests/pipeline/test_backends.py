"""Devices measured through the command line, in both backends: correction and overlap."""

import json
from pathlib import Path
from typing import Any

import openvino as ov
import pytest

from placement.runtime.measurement.request import HeteroChoice
from tests import fakes
from tests.experiments.command import check_details, check_summary, run
from tests.runtime import small

CONCURRENT = ("--config.backend=concurrent", "--config.objective=makespan")
QUICK = "--config.measure_s=0.1"


@pytest.fixture(scope="module")
def branches(tmp_path_factory) -> Path:
    """Returns the file of a model with two branches."""
    path = tmp_path_factory.mktemp("model") / "branches.xml"
    ov.save_model(small.branches(size=128, length=3), path)
    return path


def test_concurrent_placements_are_measured(branches: Path, tmp_path: Path) -> None:
    flags = [f"--config.graph={branches}", "--config.devices=auto", *CONCURRENT, QUICK]
    code, _, err = run(tmp_path, *flags, "--config.method=lns")
    assert code == 0, err
    summary = check_summary(tmp_path)
    rows = {row["method"]: row for row in summary["rows"]}
    assert rows["lns"]["measured_s"], rows["lns"]["status"]
    # How much faster depends on what else the machine does while costs are measured.
    assert rows["lns"]["predicted_s"] <= min(
        row["predicted_s"] for name, row in rows.items() if name.startswith("single:")
    )
    placed = json.loads((tmp_path / "placement.json").read_text())
    assert ("segments" in placed) == (placed["method"] != "hetero")
    segments = placed.get("segments", [])
    check_details(tmp_path)
    named = [name for _, names in segments for name in names]
    assert len(named) == len(set(named))
    for device, names in segments:
        assert {placed["placement"][name] for name in names} == {device}


def separate() -> None:
    """Lets HETERO put every other operation on the second device."""
    fakes.install()
    ask = fakes.FakeMeasurer.ask

    def answer(self: Any, request: Any) -> Any:
        if not isinstance(request, HeteroChoice):
            return ask(self, request)
        names = [device.name for device in request.devices]
        return {op: names[i % 2] for i, op in enumerate(sorted(self.computed_ops))}

    fakes.FakeMeasurer.ask = answer  # type: ignore[method-assign]


def test_separated_operations_are_reported(branches: Path, tmp_path: Path) -> None:
    flags = (f"--config.graph={branches}", "--config.devices=host:f32,f32", QUICK)
    code, _, err = run(tmp_path, *flags, "--config.method=random", broken=separate)
    assert code == 0, err
    row = {row["method"]: row for row in check_summary(tmp_path)["rows"]}["hetero"]
    assert "merged operations together, which OpenVINO separates" in row["status"]
    assert row["predicted_s"] > 0


@pytest.mark.parametrize("flags", [(), CONCURRENT])
def test_measured_searches_continue(branches: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    flags = (f"--config.graph={branches}", "--config.devices=host:f32,f32", QUICK, *flags)
    # The budget ends the search, also on a busy machine.
    flags = (*flags, "--config.method=search", "--config.evaluate=measure", "--config.budget=6")
    flags = (*flags, "--config.time_limit_s=600")
    code, _, err = run(tmp_path, *flags, broken=fakes.install)
    assert code == 0, err
    row = {row["method"]: row for row in check_summary(tmp_path)["rows"]}["search"]
    assert row["measured_s"], row["status"]
    assert 2 <= row["evaluations"] <= 6
    # The first single device is the baseline; the others are measured again beside each other.
    assert row["measurements"] >= row["evaluations"] - 1
    records = (tmp_path / "measurements.jsonl").read_text().splitlines()
    keys = {json.loads(record)["key"] for record in records}
    assert len(keys) == row["evaluations"]
    steps = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["evaluations"] == row["evaluations"]

    code, _, err = run(tmp_path, *flags, broken=fakes.install)
    assert code == 0, err
    again = (tmp_path / "measurements.jsonl").read_text().splitlines()
    assert again[: len(records)] == records


def test_profile_corrects_costs(branches: Path, tmp_path: Path) -> None:
    flags = (f"--config.graph={branches}", "--config.devices=host", QUICK)
    code, out, err = run(tmp_path, *flags, "--task=profile")
    assert code == 0, err
    correction = json.loads((tmp_path / "profile.json").read_text())["correction"]
    assert f"predictions are off by {correction['error_before']:.1%}" in " ".join(out.split())
    is_better = correction["error_after"] < correction["error_before"]
    assert is_better or set(correction["factors"]) == {1.0}
