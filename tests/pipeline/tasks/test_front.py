"""`--task=front`, and deploying one of its points."""

import json

import openvino as ov
import pytest

from tests.experiments.command import run
from tests.runtime import small

_DESCRIBED = (
    "--config.graph=synthetic:family=layered,ops=12,seed=1",
    "--config.devices=roofline:cpu,gpu,gpu",
)
_LIMITS = ("--config.budget=1000", "--config.time_limit_s=600")


def test_the_front_of_described_devices_is_written_and_printed(tmp_path):
    """It replaces an earlier front and keeps other files in its folder."""
    (tmp_path / "front").mkdir()
    for name in ("point-999.json", "notes.txt"):
        (tmp_path / "front" / name).write_text("{}")
    code, out, err = run(tmp_path, "--task=front", *_DESCRIBED, *_LIMITS, plots=True)
    assert code == 0, err
    record = json.loads((tmp_path / "front.json").read_text())
    points = record["points"]
    assert [point["number"] for point in points] == list(range(1, len(points) + 1))
    values = [[point[axis] for axis in record["axes"]] for point in points]
    for row in values:
        others = [other for other in values if other != row]
        assert not any(all(v <= w for v, w in zip(o, row, strict=True)) for o in others)
        for axis, value in zip(record["axes"], row, strict=True):
            assert record["bounds"][axis] <= value * 1.000001
    assert len(points) > 1
    assert any(point["knee"] for point in points)
    assert record["measured"] == []
    names = {path.name for path in (tmp_path / "front").iterdir()}
    assert names == {"notes.txt", *(f"point-{point['number']}.json" for point in points)}
    assert (tmp_path / "figures" / "front.svg").exists()
    assert f"{len(points)} points: " in out
    assert "above the bound" in out


@pytest.mark.slow
def test_knees_are_measured_with_openvinos_own_modes_and_any_point_is_deployed(tmp_path):
    file, workdir = tmp_path / "diamond.xml", tmp_path / "run"
    ov.save_model(small.diamond(), file, compress_to_fp16=False)
    flags = [f"--config.graph={file}", "--config.devices=host", "--config.budget=300"]
    # The limit may cut the profile and the search short; each point that is found is one.
    flags += ["--config.measure_s=0.1", "--config.time_limit_s=5"]
    code, out, err = run(workdir, "--task=front", *flags)
    assert code == 0, err
    record = json.loads((workdir / "front.json").read_text())
    measured = {row["name"]: row for row in record["measured"]}
    knees = [f"point {point['number']}" for point in record["points"] if point["knee"]]
    assert set(knees) <= set(measured)
    for row in measured.values():
        assert {"stream", "stream_failed"} & row.keys(), row
    assert any(name.endswith("THROUGHPUT]") for name in measured)
    assert "best measured time per request: " in out
    code, out, err = run(workdir, "--task=deploy", *flags, "--config.point=1")
    assert code == 0, err
    assert (workdir / "deploy" / "model.xml").exists()
    last = len(record["points"])
    code, _, err = run(workdir, "--task=deploy", *flags, f"--config.point={last + 1}")
    assert code == 2
    assert f"give 1 to {last}" in err


def test_a_point_without_a_front_is_refused_in_one_line(tmp_path):
    code, _, err = run(tmp_path, "--task=deploy", "--config.point=3")
    assert code == 2
    assert "run --task=front with this --workdir first" in err
    assert len(err.splitlines()) == 1
