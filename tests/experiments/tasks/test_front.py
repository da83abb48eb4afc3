"""`--task=front`, and deploying one of its points."""

import json

import pytest

from tests.experiments.command import run

_GRAPH = "--config.graph=resnet:depth=18,size=32"
_QUICK = ("--config.budget=3000", "--config.measure_s=1")


def test_the_front_of_described_devices_is_written_and_told(tmp_path):
    flags = ("--task=front", _GRAPH, "--config.devices=roofline:cpu,gpu,gpu", *_QUICK)
    code, out, err = run(tmp_path, *flags, plots=True)
    assert code == 0, err
    told = json.loads((tmp_path / "front.json").read_text())
    points = told["points"]
    assert [point["number"] for point in points] == list(range(1, len(points) + 1))
    values = [[point[axis] for axis in told["axes"]] for point in points]
    for row in values:
        others = [other for other in values if other != row]
        assert not any(all(v <= w for v, w in zip(o, row, strict=True)) for o in others)
        for axis, value in zip(told["axes"], row, strict=True):
            assert told["bounds"][axis] <= value * 1.000001
    assert any(point["knee"] for point in points)
    assert told["measured"] == []
    names = {path.name for path in (tmp_path / "front").iterdir()}
    assert names == {f"point-{point['number']}.json" for point in points}
    assert (tmp_path / "figures" / "front.svg").exists()
    assert f"{len(points)} points: " in out
    assert "above the bound" in out


@pytest.mark.slow
def test_knees_are_measured_beside_what_openvino_does_and_any_point_is_deployed(tmp_path):
    flags = (_GRAPH, "--config.devices=host", *_QUICK)
    code, out, err = run(tmp_path, "--task=front", *flags)
    assert code == 0, err
    told = json.loads((tmp_path / "front.json").read_text())
    measured = {row["name"]: row for row in told["measured"]}
    knees = [f"point {point['number']}" for point in told["points"] if point["knee"]]
    assert set(knees) <= set(measured)
    for row in measured.values():
        assert {"stream", "stream_failed"} & row.keys(), row
    assert any(name.endswith("THROUGHPUT]") for name in measured)
    assert "best throughput as measured: " in out
    code, out, err = run(tmp_path, "--task=deploy", *flags, "--config.point=1")
    assert code == 0, err
    assert (tmp_path / "deploy" / "model.xml").exists()
    last = len(told["points"])
    code, _, err = run(tmp_path, "--task=deploy", *flags, f"--config.point={last + 1}")
    assert code == 2
    assert f"give 1 to {last}" in err


def test_a_point_without_a_front_is_refused_in_one_line(tmp_path):
    code, _, err = run(tmp_path, "--task=deploy", "--config.point=3")
    assert code == 2
    assert "run --task=front with this --workdir first" in err
    assert len(err.splitlines()) == 1
