"""`devices=cores` from the command line, on the real CPU plug-in."""

import json
import os

import numpy as np
import openvino as ov
import pytest

import placement
from placement.pipeline import change_costs, saved_costs
from placement.runtime import devices, processors
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import MIN_SAMPLES, Candidate, Measure, Measurement
from placement.runtime.models import frontend
from tests.experiments.command import run
from tests.runtime import small

_ON = f"--config.devices={devices.CORES}"
_CONCURRENT = ("--config.backend=concurrent", "--config.objective=makespan")
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@two_cores
def test_a_model_is_placed_on_groups_of_cores_reported_and_deployed(tmp_path):
    file = tmp_path / "branches.xml"
    model = small.branches(size=64)
    ov.save_model(model, file, compress_to_fp16=False)
    flags = [f"--config.graph={file}", _ON, *_CONCURRENT, "--config.measure_s=0.2"]
    flags += ["--config.method=random", "--config.search_anyway=true", "--config.time_limit_s=20"]
    code, _, err = run(tmp_path / "run", *flags)
    assert code == 0, err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    rows = {row["method"]: row for row in summary["rows"]}
    assert rows["single:CPU_ALL"]["measured_s"] is not None
    assert rows["random"]["measured_s"] is not None, rows["random"]["status"]
    assert sum(bool(row.get("reference")) for row in rows.values()) in (1, 2)
    saved = saved_costs.read(tmp_path / "run" / "profile.json")
    assert saved["cores"] == [list(device.cores) for device in devices.resolve("cores")]
    is_left_out = change_costs.LEFT_OUT in saved["conditions"]["left_out"]
    assert is_left_out == (len(saved["changes"]["placements"]) == 1)
    placed = json.loads((tmp_path / "run" / "placement.json").read_text())
    assert set(placed["provenance"]["devices"]) >= {"CPU_ALL"}

    code, _, err = run(tmp_path / "run", "--task=deploy", *flags)
    assert code == 0, err
    x = np.random.default_rng(0).standard_normal(list(model.inputs[0].shape)).astype(np.float32)
    with placement.load(tmp_path / "run" / "deploy") as net:
        found = net.infer([x])
    expected = small.expected(model, [x])
    for output, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(output, reference, rtol=0.05, atol=0.05 * np.ptp(reference))


@two_cores
def test_a_model_runs_on_numa_nodes_of_one_core_each(monkeypatch):
    first, second = processors.list_allowed_cores()[:2]
    monkeypatch.setattr(processors, "list_allowed_cores", lambda: [first, second])
    monkeypatch.setattr(
        processors, "find_core_groups", lambda _: {"NODE_0": [first], "NODE_1": [second]}
    )
    group = devices.resolve("cores")
    assert [device.name for device in group] == ["CPU_ALL", "CPU_NODE_0", "CPU_NODE_1"]
    model = frontend.prepare(small.branches(length=2))
    segments = (
        Segment("CPU_NODE_0", ("left_0", "left_1")),
        Segment("CPU_NODE_1", ("right_0", "right_1")),
        Segment("CPU_ALL", ("sum",)),
    )
    affinity = {name: segment.device for segment in segments for name in segment.ops}
    candidates = [Candidate(None, group[:1]), Candidate(affinity, group, segments)]
    with LocalMeasurer(model, group) as measurer:
        outcomes = measurer.ask(Measure(candidates, MIN_SAMPLES, 0.1))
    for outcome in outcomes:
        assert isinstance(outcome, Measurement), outcome
    assert outcomes[1].execution_devices == ("CPU_ALL", "CPU_NODE_0", "CPU_NODE_1")
    assert outcomes[1].output_error <= outcomes[1].tolerance


@two_cores
@pytest.mark.parametrize(
    "flags",
    [
        ("--config.backend=hetero", "--config.objective=serial"),
        ("--config.backend=concurrent", "--config.objective=max_load"),
    ],
)
def test_other_backends_and_objectives_are_one_line(flags, tmp_path):
    file = tmp_path / "branches.xml"
    ov.save_model(small.branches(), file)
    code, _, err = run(tmp_path / "run", f"--config.graph={file}", _ON, *flags)
    assert code == 2
    (line,) = err.strip().splitlines()
    assert "backend='concurrent' and objective='makespan'" in line
