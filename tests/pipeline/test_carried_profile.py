"""Profile on one machine, search on another, deploy on the first: three run directories here."""

import json
import shutil
from pathlib import Path

import openvino as ov

from tests.experiments.command import run
from tests.runtime import small


def test_carried_profiles_are_deployed(tmp_path: Path):
    file = tmp_path / "model.xml"
    ov.save_model(small.convolutions(), file, compress_to_fp16=False)
    graph = f"--config.graph={file}"
    on = ("--config.devices=host:f32,f32", "--config.backend=hetero", "--config.objective=serial")
    quick = ("--config.measure_s=0.2", "--config.time_limit_s=1")
    code, _, err = run(tmp_path / "lab", "--task=profile", graph, *on, *quick)
    assert code == 0, err
    carried = tmp_path / "carried.json"
    shutil.copy(tmp_path / "lab/profile.json", carried)
    # No device is asked: the names and costs of all of them are those of the file.
    code, _, err = run(
        *(tmp_path / "desk", graph, "--config.evaluate=simulate", f"--config.costs={carried}"),
        *("--config.backend=hetero", "--config.objective=serial", "--config.method=graph_cut"),
    )
    assert code == 0, err
    rows = json.loads((tmp_path / "desk/summary.json").read_text())["rows"]
    assert all(row["measured_s"] is None for row in rows)
    (tmp_path / "target").mkdir()
    shutil.copy(tmp_path / "desk/placement.json", tmp_path / "target/placement.json")
    code, _, err = run(tmp_path / "target", "--task=deploy", graph, *on, *quick)
    assert code == 0, err
    assert (tmp_path / "target/deploy/placement.json").exists()
