"""`--task=deploy` on the real CPU plug-in: the command, and the deployed form."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

import placement
from configs import smoke
from placement import files
from placement.errors import UserError
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import deploy as task
from placement.reporting import runs
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment import decision, description
from placement.runtime.execution import hetero
from placement.runtime.measurement.request import Interval
from placement.runtime.models import fingerprint, frontend
from tests.experiments.command import run
from tests.runtime import small
from tests.runtime.deployment import test_shapes, test_stateful_shapes

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)
SEGMENTS = [[A, ["x", "top"]], [B, ["left"]], [A, ["right", "bottom"]]]
# The limit cuts the profile short, of which these tests need nothing.
_QUICK = ("--config.method=random", "--config.budget=4", "--config.time_limit_s=0.1")
INPUT = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)


def config(graph: Path, **changes) -> Settings:
    values = {"graph": str(graph), "measure_s": 0.2} | changes
    return Settings.from_mapping(dict(smoke.get_config()) | values)


def prepared(workdir: Path, model: ov.Model, *, segments=(), **others: str) -> Path:
    """Writes a model, and a placement of it as --task=place would; returns the model's file."""
    file = workdir / "model.xml"
    ov.save_model(model, file, compress_to_fp16=False)
    read = frontend.prepare(frontend.load(str(file)))
    provenance = {
        "graph": {"name": "model"},
        "devices": {d.name: {"label": d.label, "properties": dict(d.properties)} for d in HOST},
        "model": fingerprint.compute_fingerprint(read),
    }
    data = {"method": "by hand", "placement": small.everywhere(read, A, **others)}
    data |= {"provenance": provenance} | ({"segments": segments} if segments else {})
    runs.write_json(workdir / "placement.json", data)
    return file


def test_a_placement_is_deployed_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "chain.xml"
    ov.save_model(small.convolutions(), file, compress_to_fp16=False)
    flags = [f"--config.graph={file}", "--config.measure_s=0.1"]
    options = [*_QUICK, "--config.devices=host"]
    code, _, err = run(tmp_path / "run", *flags, *options)
    assert code == 0, err
    code, out, err = run(tmp_path / "run", "--task=deploy", *flags)
    assert code == 0, err
    folder = tmp_path / "run" / "deploy"
    assert {path.name for path in folder.iterdir()} == {
        *("model.xml", "model.bin", "compiled.blob", "compiled.json", "deploy.json", "deploy.md"),
        *("affinities.json", "loader.cpp"),
    }
    record = json.loads((folder / "deploy.json").read_text())
    assert record["checks"]["model"] == "the one that was placed"
    assert f"placement.load('{folder}')" in out
    with placement.load(folder) as net:
        assert net.form == record["form"]

    ov.save_model(small.convolutions(length=5, size=12), file, compress_to_fp16=False)
    before = (folder / "deploy.json").read_bytes()
    code, out, err = run(tmp_path / "run", "--task=deploy", *flags)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert "it has new 'weights_4', 'conv_4', 'relu_4'; 'x' was Parameter f32[1,16,14,14]" in err
    assert (folder / "deploy.json").read_bytes() == before


def test_a_model_with_a_scalar_input_is_placed_and_deployed(tmp_path: Path) -> None:
    """Deploying measures the placement in both forms, 'concurrent' and 'hetero'."""
    file = tmp_path / "scaled.xml"
    ov.save_model(small.scaled(), file, compress_to_fp16=False)
    options = ["--config.backend=concurrent", "--config.objective=makespan", *_QUICK]
    for task_ in ("place", "deploy"):
        code, _, err = run(
            tmp_path / "run",
            f"--task={task_}",
            f"--config.graph={file}",
            "--config.devices=host",
            "--config.measure_s=0.1",
            *(options if task_ == "place" else ()),
        )
        assert code == 0, err
    with placement.load(tmp_path / "run" / "deploy") as net:
        scaled, squared = net.infer({"x": np.ones(4, np.float32), "scale": 3.0})
    np.testing.assert_array_equal(scaled, np.full(4, 3))
    assert (squared.shape, float(squared)) == ((), 9.0)


def judged(monkeypatch, **ratios: float) -> None:
    """Gives the forms these ratios to the best single device, and drops other rows."""
    measure = decision.measure

    def flattering(*args, **kwargs):
        rows = measure(*args, **kwargs)
        known = [row for row in rows if row.form in ("single", *ratios)]
        return [
            row._replace(ratio=Interval(ratios[row.form], *2 * (ratios[row.form],), 20))
            if row.form in ratios
            else row
            for row in known
        ]

    monkeypatch.setattr(decision, "measure", flattering)


def test_a_slower_placement_is_not_deployed_and_the_output_says_so(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    judged(monkeypatch, hetero=3.0, concurrent=2.0)
    file = prepared(tmp_path, small.diamond(), segments=SEGMENTS, left=B)
    record = task.run(config(file), tmp_path)
    assert record["fallback"]
    assert record["form"] == artifact_lib.SINGLE
    rows = {row["name"]: row for row in record["rows"]}
    assert record["deployed"] == record["rows"][0]["name"]
    assert rows["placement, concurrent"]["output_error"] <= 0.1
    out = capsys.readouterr().out
    device = record["deployed"].removeprefix("single:")
    assert f"Use {device} alone: " in out
    assert ". The placement, concurrent takes " in out
    assert f"deployed instead of the placement: single:{device}" in out
    folder = tmp_path / "deploy"
    saved = json.loads((folder / "deploy.json").read_text())
    assert saved["fallback"] is True
    assert f"**Use {device} alone: " in (folder / "deploy.md").read_text()
    model = ov.Core().read_model(folder / "model.xml")
    assert model.get_rt_info(["placement", "fallback"]).astype(str) == "yes"
    with placement.load(folder) as net:
        assert net.compiled.get_property("EXECUTION_DEVICES") == [device]
    with pytest.raises(UserError, match="no concurrent form: it was deployed on the verdict 'Use "):
        placement.load(folder, concurrent=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(".lock", "deploy", "model.bin", "model.xml", "placement.json")
    ]


@pytest.mark.parametrize("form", [artifact_lib.HETERO, artifact_lib.CONCURRENT])
def test_a_faster_placement_is_deployed_in_its_faster_form(tmp_path, monkeypatch, form) -> None:
    """No placement is faster here, so the ratio of one form is set."""
    judged(monkeypatch, **{"hetero": 1.0, "concurrent": 1.0} | {form: 0.5})
    file = prepared(tmp_path, small.diamond(), segments=SEGMENTS, left=B)
    record = task.run(config(file), tmp_path)
    assert (record["form"], record["fallback"]) == (form, False)
    core = devices.open_core(devices.resolve("host"))
    affinity = small.everywhere(small.diamond(), A, left=B)
    compiled = hetero.compile_placement(core, small.diamond(), affinity, devices.resolve("host"))
    right = compiled(INPUT)[0]
    with placement.load(tmp_path / "deploy") as net:
        assert net.form == form
        (output,) = net.infer({"x": INPUT})
    np.testing.assert_allclose(output, right, atol=0.02 * np.ptp(right))
    imported = json.loads((tmp_path / "deploy" / "compiled.json").read_text())
    alone = artifact_lib.HETERO if form == artifact_lib.HETERO else artifact_lib.SINGLE
    assert imported["form"] == alone
    assert record["checks"].keys() >= {"outputs after load", "outputs after import"}


def test_a_model_with_an_infinite_mask_is_deployed(tmp_path: Path) -> None:
    source = ops.parameter([4, 8], np.float32, name="x")
    mask = np.where(np.tri(4, 8) > 0, 0, -np.inf).astype(np.float32)
    masked = ops.softmax(ops.add(source, ops.constant(mask)), 1)
    model = ov.Model([ops.result(masked)], [source], "masked")
    np.savez(tmp_path / "real.npz", x=np.stack([INPUT, 2 * INPUT]))
    given = config(prepared(tmp_path, model), inputs=str(tmp_path / "real.npz"))
    record = task.run(given, tmp_path)
    assert record["checks"]["model"] == "the one that was placed"
    assert f"- inputs: 2 of {given.inputs}" in (tmp_path / "deploy" / "deploy.md").read_text()


@pytest.mark.skipif("BF16" not in B, reason="needs a processor that computes in bf16")
@pytest.mark.parametrize("devices_given", ["host", "CPU"])
def test_a_model_that_bf16_gets_wrong_is_placed_and_deployed_in_f32(tmp_path, devices_given):
    file = tmp_path / "rounded.xml"
    ov.save_model(small.rounded(), file, compress_to_fp16=False)
    flags = [f"--config.graph={file}", "--config.measure_s=0.1"]
    on = f"--config.devices={devices_given}"
    options = _QUICK
    code, out, err = run(tmp_path / "run", *flags, on, *options)
    assert code == 0, err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    single = [r for r in summary["rows"] if r["method"].startswith("single:")]
    if devices_given == "CPU":
        assert "it computes in f32 instead" in out + err
        assert "f32 as bf16 is wrong" in summary["devices"][-1]
        assert all(row["measured_s"] for row in single)
    else:  # the core in bf16 remains for operations that it computes right
        assert "The error comes from near and 1 more" in out
        assert [bool(row["measured_s"]) for row in single] == [True, False]
        assert "outputs differ by 0.25" in single[1]["status"]
    for given in ([], [on]):
        code, out, err = run(tmp_path / "run", "--task=deploy", *flags, *given)
        assert code == 0, err
        with placement.load(tmp_path / "run" / "deploy") as net:
            (found,) = net.infer([np.full((64, 64), 0.3, np.float32)])
        np.testing.assert_allclose(found, 0.3, atol=1e-3)


def test_if_no_single_device_is_right_the_whole_cpu_may_be_deployed(tmp_path, monkeypatch):
    """No device is wrong here, so the rows of the single devices are set to failures."""
    measure = decision.measure

    def failing(*args, **kwargs):
        broken = {"latency": None, "ratio": None, "status": "infer: it broke"}
        rows = [row._replace(ratio=None) for row in measure(*args, **kwargs)]
        return [r._replace(**broken) if r.form != decision.REFERENCE else r for r in rows]

    monkeypatch.setattr(decision, "measure", failing)
    record = task.run(config(prepared(tmp_path, small.diamond(), left=B)), tmp_path)
    assert (record["form"], record["fallback"]) == (artifact_lib.SINGLE, True)
    assert record["deployed"].startswith("CPU [")
    assert "infer: it broke" in record["decision"]
    with placement.load(tmp_path / "deploy") as net:
        assert net.compiled.get_property("EXECUTION_DEVICES") == ["CPU"]


def test_the_whole_cpu_is_deployed_if_it_is_faster_than_the_placement(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    judged(monkeypatch, hetero=0.9, reference=0.5)
    record = task.run(config(prepared(tmp_path, small.diamond(), left=B)), tmp_path)
    assert (record["form"], record["fallback"]) == (artifact_lib.SINGLE, True)
    assert record["deployed"].startswith("CPU [")
    out = capsys.readouterr().out
    assert f"Use {record['deployed']}: " in out
    assert f"deployed instead of the placement: {record['deployed']}" in out
    with placement.load(tmp_path / "deploy") as net:
        assert net.compiled.get_property("EXECUTION_DEVICES") == ["CPU"]


def changed(tmp_path: Path, **others) -> None:
    file = tmp_path / "placement.json"
    data = json.loads(file.read_text())
    file.write_text(json.dumps(data | others))


def test_a_placement_that_does_not_fit_is_refused_before_measuring(tmp_path: Path) -> None:
    file = prepared(tmp_path, small.diamond(), left=B)
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(UserError, match=r"no placement.json in .*elsewhere"):
        task.run(config(file), elsewhere)
    with pytest.raises(UserError, match="not among devices='CPU'"):
        task.run(config(file, devices="CPU"), tmp_path)
    with pytest.raises(UserError, match="not a model that a device could run"):
        task.run(config(Path("synthetic:ops=9"), devices="roofline:cpu,gpu"), tmp_path)
    affinity = small.everywhere(small.diamond(), "GPU.5")
    changed(tmp_path, placement=affinity)
    with pytest.raises(UserError, match=r"uses 'GPU\.5', not present") as caught:
        task.run(config(file), tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "deploy").exists()


def test_a_written_model_with_wrong_outputs_is_removed(tmp_path, monkeypatch) -> None:
    file = prepared(tmp_path, small.diamond(), left=B)
    task.run(config(file), tmp_path)
    before = (tmp_path / "deploy" / "deploy.json").read_bytes()
    save = artifact_lib.save

    def other_weights(artifact, folder):
        why = save(artifact, folder)
        weights = folder / "model.bin"
        weights.write_bytes(bytes(len(weights.read_bytes())))
        description.seal(folder / "model.xml")
        return why

    monkeypatch.setattr(artifact_lib, "save", other_weights)
    with pytest.raises(UserError, match="wrong outputs after load"):
        task.run(config(file), tmp_path)
    assert (tmp_path / "deploy" / "deploy.json").read_bytes() == before
    assert not list(tmp_path.glob(".deploy*"))


def unmeasured() -> None:
    """Replaces measuring by rows of a placement on a single device."""

    def rows(*_, **__):
        latency, ratio = Interval(1e-3, 1e-3, 1e-3, 20), Interval(1.0, 1.0, 1.0, 20)
        return [decision.Row(f"single:{A}", artifact_lib.SINGLE, latency, ratio, 0.0, 1e-3, "ok")]

    decision.measure = rows


def killed_before_the_exchange() -> None:
    unmeasured()
    files.exchange_paths = lambda *_: os._exit(9)


def killed_after_the_exchange() -> None:
    unmeasured()
    exchange = files.exchange_paths
    files.exchange_paths = lambda *paths: exchange(*paths) and os._exit(9)


def killed_between_files() -> None:
    """Simulates a kill on a file system without exchange: model.xml is gone, two files are new."""
    unmeasured()
    files.exchange_paths = lambda *_: False
    replace = os.replace
    count = 0

    def replaced(source, target):
        nonlocal count
        count += Path(target).parent.name == "deploy"
        if count > 2:
            os._exit(9)
        replace(source, target)

    os.replace = replaced


@pytest.mark.parametrize(
    "kill", [killed_before_the_exchange, killed_after_the_exchange, killed_between_files]
)
def test_after_a_kill_the_next_deployment_is_complete_and_keeps_the_users_files(tmp_path, kill):
    flags = ("--task=deploy", f"--config.graph={prepared(tmp_path, small.diamond())}")
    folder, notes = tmp_path / "deploy", tmp_path / "deploy" / "notes"
    notes.mkdir(parents=True)
    (notes / "mine.txt").write_text("mine")
    assert run(tmp_path, *flags, broken=unmeasured)[0] == 0
    assert run(tmp_path, *flags, broken=kill)[0] == 9
    if kill is not killed_between_files:
        placement.load(folder).close()
    code, _, err = run(tmp_path, *flags, broken=unmeasured)
    assert code == 0, err
    placement.load(folder).close()
    assert (notes / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".deploy*"))


def test_a_folder_of_other_files_is_refused_before_measuring(tmp_path):
    file, folder = prepared(tmp_path, small.diamond()), tmp_path / "deploy"
    folder.write_text("mine")
    with pytest.raises(UserError, match="is a file; move it"):
        task.run(config(file), tmp_path)
    assert folder.read_text() == "mine"
    folder.unlink()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a symbolic link"):
        task.run(config(file), tmp_path)
    folder.unlink()
    folder.mkdir()
    for path in (file, file.with_suffix(".bin")):
        (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UserError, match=r"has 'model\.bin', 'model\.xml' but no deploy\.json"):
        task.run(config(file), tmp_path)
    with pytest.raises(UserError, match="which this task writes"):
        task.run(config(folder / "model.xml"), tmp_path)
    assert (folder / "model.xml").read_bytes() == file.read_bytes()


READER = """
import pathlib, sys
import numpy, placement
folder, ready, done = sys.argv[1:]
count = 0
while not pathlib.Path(done).exists():
    with placement.load(folder) as net:
        net.infer([numpy.ones((4, 8), numpy.float32)])
    count += 1
    pathlib.Path(ready).touch()
print(count)
"""


@pytest.mark.parametrize("exchanged", [True, False])
def test_a_reader_is_served_while_another_process_deploys(tmp_path, monkeypatch, exchanged):
    monkeypatch.setattr(decision, "measure", None)
    unmeasured()
    if not exchanged:
        monkeypatch.setattr(files, "exchange_paths", lambda *_: False)
    file = prepared(tmp_path, small.diamond())
    task.run(config(file), tmp_path)
    ready, done = tmp_path / "ready", tmp_path / "done"
    command = [sys.executable, "-c", READER, *map(str, (tmp_path / "deploy", ready, done))]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not ready.exists() and reader.poll() is None:
            time.sleep(0.05)
        for _ in range(3):
            task.run(config(file), tmp_path)
        done.touch()
        out, err = reader.communicate(timeout=600)
    finally:
        reader.kill()
        reader.wait()
    assert reader.returncode == 0, err
    assert int(out) > 1


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_nan_outputs_are_not_called_right(tmp_path, monkeypatch, capsys, share):
    monkeypatch.setattr(decision, "measure", None)
    unmeasured()
    weights = np.where(np.arange(8) < 8 * share, np.nan, 1).astype(np.float32)
    source = ops.parameter([4, 8], np.float32, name="x")
    scaled = ops.multiply(source, ops.constant(weights), name="scaled")
    file = prepared(tmp_path, ov.Model([ops.result(scaled)], [source], "scaled"))
    if share == 1:
        with pytest.raises(UserError, match="all outputs of the model are NaN"):
            task.run(config(file), tmp_path)
        assert not (tmp_path / "deploy").exists()
        return
    record = task.run(config(file), tmp_path)
    message = "0.25 of the output values are NaN, as on the reference device"
    assert record["checks"]["NaN"].startswith(message)
    assert message in capsys.readouterr().out
    assert f"- NaN: {message}" in (tmp_path / "deploy" / "deploy.md").read_text()


def test_a_dynamic_model_is_placed_and_deployed(tmp_path: Path) -> None:
    file = tmp_path / "dynamic.xml"
    ov.save_model(test_shapes.dynamic(), file, compress_to_fp16=False)
    flags = [f"--config.graph={file}", "--config.measure_s=0.2", "--config.input_shapes=x:4,8"]
    code, _, err = run(tmp_path / "run", *flags, *_QUICK, "--config.devices=host")
    assert code == 0, err
    code, _, err = run(tmp_path / "run", "--task=deploy", *flags)
    assert code == 0, err
    text = (tmp_path / "run/deploy/deploy.md").read_text()
    assert re.search(r"- other shapes: \[8, 8\] off by \S+; \[5, 8\] off by \S+\n", text)
    assert "the model with its dynamic inputs" in text
    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    with placement.load(tmp_path / "run/deploy") as network:
        assert network.infer([np.ones((9, 8), np.float32)])[0].shape == (9, 2, 4)
        (y,) = network.infer([x])
    np.testing.assert_allclose(y, test_shapes.plain(x), atol=0.1 * test_shapes.plain(x).std())


def test_a_decoder_is_placed_and_deployed(tmp_path: Path) -> None:
    graph = f"--config.graph={test_stateful_shapes.DECODER}"
    flags = [graph, "--config.measure_s=0.1", "--config.input_shapes=ids:1,8"]
    code, _, err = run(tmp_path / "run", *flags, *_QUICK, "--config.devices=host")
    assert code == 0, err
    code, _, err = run(tmp_path / "run", "--task=deploy", *flags)
    assert code == 0, err
    text = (tmp_path / "run/deploy/deploy.md").read_text()
    assert re.search(r"- other shapes: \[1, 16\] off by \S+; \[1, 9\] off by", text)
    prompt, generate = test_stateful_shapes.PROMPT, test_stateful_shapes.generate
    with placement.load(tmp_path / "run/deploy") as network:
        tokens = generate(network, prompt, 30)
    assert tokens == generate(test_stateful_shapes.plain(), prompt, 30)
    assert len(set(tokens)) > 15


def test_a_model_with_a_state_is_not_placed_for_a_stream(tmp_path: Path) -> None:
    graph = "--config.graph=decoder:layers=1,hidden=32,heads=2,vocabulary=200,context=64"
    flags = [graph, "--config.input_shapes=ids:1,8", *_QUICK]
    stream = ["--config.backend=concurrent", "--config.objective=max_load"]
    code, _, err = run(tmp_path / "run", *flags, *stream, "--config.devices=host")
    assert code == 2
    assert "keeps a state from one inference to the next" in err
    assert "set objective='serial' or 'makespan'" in err
