"""`--task=deploy` on the real CPU plug-in: the command, and the deployed form."""

import dataclasses
import errno
import functools
import json
import os
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
from placement.errors import UserError
from placement.pipeline import deploy as task
from placement.pipeline import loading
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.runtime.deployment import artifact, preflight
from placement.runtime.deployment.artifact import CONCURRENT, HETERO, MANIFEST, SINGLE
from placement.runtime.execution import hetero
from placement.runtime.measurement.request import Candidate, Failure, Interval
from placement.runtime.models import fingerprint, frontend
from tests.experiments.command import run
from tests.runtime import small
from tests.runtime.deployment import test_network
from tests.runtime.deployment.folders import HOST, INPUT, A, B
from tests.runtime.deployment.test_preflight import measurement

NUM_FILES = 6  # of a deployment, the manifest included
SEGMENTS = [[A, ["x", "top"]], [B, ["left"]], [A, ["right", "bottom"]]]
# The limit cuts the profile short, of which these tests need nothing.
_QUICK = ("--config.method=random", "--config.budget=4", "--config.time_limit_s=0.1")


def config(graph: Path, **changes) -> Settings:
    values = {"graph": str(graph), "measure_s": 0.2} | changes
    return Settings.from_mapping(dict(smoke.get_config()) | values)


def prepare(workdir: Path, model: ov.Model, *, segments=(), shapes: str = "", **others) -> Path:
    """Writes a model, and a placement of it as --task=place would; returns the model's file."""
    file = workdir / "model.xml"
    ov.save_model(model, file, compress_to_fp16=False)
    read = frontend.prepare(frontend.load(str(file)), shapes)
    provenance = {
        "graph": {"name": "model"},
        "devices": {device.name: dataclasses.asdict(device) for device in HOST},
        "model": fingerprint.compute_fingerprint(read),
    }
    data = {"method": "by hand", "placement": small.everywhere(read, A, **others)}
    data |= {"provenance": provenance, "segments": list(segments)}
    runs.write_json(workdir / "placement.json", data)
    return file


def read_manifest(folder: Path) -> dict:
    return json.loads((folder / MANIFEST).read_text())


def list_models(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("model-*"))


def test_placement_is_deployed_by_command(tmp_path: Path) -> None:
    file = tmp_path / "chain.xml"
    ov.save_model(small.convolutions(), file, compress_to_fp16=False)
    flags = [f"--config.graph={file}", "--config.measure_s=0.1"]
    code, _, err = run(tmp_path / "run", *flags, *_QUICK, "--config.devices=host")
    assert code == 0, err
    code, out, err = run(tmp_path / "run", "--task=deploy", *flags)
    assert code == 0, err
    folder = tmp_path / "run" / "deploy"
    content = read_manifest(folder)
    assert {path.name for path in folder.iterdir()} == {*content["files"], "placement.json"}
    assert {"affinities.json", "loader.cpp", "deploy.md", content["model"]} < {*content["files"]}
    assert content["checks"]["model"] == "the one that was placed"
    assert f"placement.load('{folder}')" in out
    with placement.load(folder) as net:
        assert net.form == content["form"]


@pytest.fixture
def judge(monkeypatch):
    """Gives the forms these ratios to the best single device, and drops other rows."""
    measure = preflight.measure

    def judge(**ratios: float) -> None:
        def measure_flattering(*args, **kwargs):
            rows = measure(*args, **kwargs)
            intervals = {form: Interval(*[ratio] * 3, 20) for form, ratio in ratios.items()}
            return [
                row._replace(outcome=row.outcome._replace(ratio=intervals[row.form]))
                if row.form in ratios
                else row
                for row in rows
                if row.form in (SINGLE, *ratios)
            ]

        monkeypatch.setattr(preflight, "measure", measure_flattering)

    return judge


def test_a_slower_placement_falls_back(tmp_path, judge, capsys) -> None:
    judge(hetero=3.0, concurrent=2.0)
    file = prepare(tmp_path, small.diamond(), segments=SEGMENTS, left=B)
    record = task.run(config(file), tmp_path)
    rows = {row["method"]: row for row in record["rows"]}
    assert record["deployed"] == record["rows"][0]["method"]
    assert rows["placement, concurrent"]["output_error"] <= 0.1
    out = capsys.readouterr().out
    device = record["deployed"].removeprefix("single:")
    assert f"Use {device} alone: " in out
    assert ". The placement, concurrent takes " in out
    assert f"deployed instead of the placement: single:{device}" in out
    folder = tmp_path / "deploy"
    content = read_manifest(folder)
    assert (content["fallback"], content["form"]) == (True, SINGLE)
    assert f"**Use {device} alone: " in (folder / "deploy.md").read_text()
    with placement.load(folder) as net:
        assert net.compiled.get_property("EXECUTION_DEVICES") == [device]
        assert "HETERO_NUMBER_OF_SUBMODELS" not in net.compiled.get_property("SUPPORTED_PROPERTIES")
    with pytest.raises(UserError, match="deployed in form 'single' and has no concurrent form"):
        placement.load(folder, concurrent=True)
    names = [*(".lock", "deploy", "model.bin", "model.xml", "placement.json")]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("form", [HETERO, CONCURRENT])
def test_the_faster_form_is_deployed(tmp_path, judge, form) -> None:
    """No placement is faster here, so the ratio of one form is set."""
    judge(**{"hetero": 1.0, "concurrent": 1.0} | {form: 0.5})
    file = prepare(tmp_path, small.diamond(), segments=SEGMENTS, left=B)
    record = task.run(config(file), tmp_path)
    assert not record["fallback"]
    core = small.open_core(HOST)
    affinity = small.everywhere(small.diamond(), A, left=B)
    expected = hetero.compile_placement(core, small.diamond(), affinity, HOST)(INPUT)[0]
    for concurrent in (None, False):
        with placement.load(tmp_path / "deploy", concurrent=concurrent) as net:
            assert net.form == (form if concurrent is None else HETERO)
            if net.form == HETERO:
                assert net.compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 3
                assert set(net.compiled.get_property("EXECUTION_DEVICES")) == {A, B}
            (output,) = net.infer({"x": INPUT})
        np.testing.assert_allclose(output, expected, atol=0.02 * np.ptp(expected))


def test_whole_cpu_may_be_deployed(tmp_path, judge, monkeypatch) -> None:
    judge(hetero=0.9, reference=0.5)
    settings = config(prepare(tmp_path, small.diamond(), left=B))
    record = task.run(settings, tmp_path)
    assert record["fallback"]
    assert record["deployed"].startswith("CPU [")
    measure = preflight.measure

    def measure_failing(*args, **kwargs):
        return [
            row
            if row.form == preflight.REFERENCE
            else row._replace(outcome=Failure("infer", "it broke"))
            for row in measure(*args, **kwargs)
        ]

    monkeypatch.setattr(preflight, "measure", measure_failing)
    record = task.run(settings, tmp_path)
    assert record["deployed"].startswith("CPU [")
    assert "infer: it broke" in record["decision"]
    with placement.load(tmp_path / "deploy") as net:
        assert net.compiled.get_property("EXECUTION_DEVICES") == ["CPU"]


def test_unfit_placements_are_refused(tmp_path: Path) -> None:
    file = prepare(tmp_path, small.diamond(), left=B)
    with pytest.raises(UserError, match=r"elsewhere/placement.json' cannot be read: No such"):
        task.run(config(file), tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is not a model that a device could run"):
        task.run(config(Path("synthetic:ops=9"), devices="roofline:cpu,gpu"), tmp_path)
    ov.save_model(small.shared_constant(), file)
    with pytest.raises(UserError, match=r"is not the one that was placed: .*new 'matrix'"):
        task.run(config(file), tmp_path)
    assert not (tmp_path / "deploy").exists()


def measure_nothing(*_, **__) -> list[preflight.Row]:
    """Replaces measuring: a placement on a single device."""
    candidate, outcome = Candidate(None, HOST[:1]), measurement(1e-3, ratio=1.0)
    return [preflight.Row(f"single:{A}", SINGLE, candidate, outcome)]


def unmeasured() -> None:
    preflight.measure = measure_nothing


@pytest.fixture
def quick(monkeypatch):
    """Skips measuring."""
    monkeypatch.setattr(preflight, "measure", measure_nothing)


def end_after(num_moves: int) -> None:
    """Lets this process end after it has moved so many files to `deploy`."""
    unmeasured()
    replace, count = os.replace, 0

    def replace_or_end(source, target):
        nonlocal count
        is_move = Path(target).parent.name == "deploy"
        if is_move and count == num_moves:
            os._exit(9)
        replace(source, target)
        count += is_move
        if count == NUM_FILES == num_moves:
            os._exit(9)

    os.replace = replace_or_end


@pytest.mark.parametrize("num_moves", [NUM_FILES - 1, NUM_FILES])
def test_kills_leave_valid_folders(tmp_path, num_moves):
    folder = tmp_path / "deploy"
    flags = ("--task=deploy", f"--config.graph={prepare(tmp_path, small.diamond())}")
    assert run(tmp_path, *flags, broken=functools.partial(end_after, num_moves))[0] == 9
    assert (folder / "placement.json").exists() == (num_moves == NUM_FILES)
    assert run(tmp_path, *flags, broken=unmeasured)[0] == 0
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").write_text("mine")
    models = list_models(folder)
    prepare(tmp_path, small.shared_constant())
    assert run(tmp_path, *flags, broken=functools.partial(end_after, num_moves))[0] == 9
    model = small.shared_constant() if num_moves == NUM_FILES else small.diamond()
    expected = small.reference(model)([INPUT])[0]
    with placement.load(folder) as net:
        np.testing.assert_allclose(net.infer([INPUT])[0], expected, atol=1e-3 * np.ptp(expected))
    code, _, err = run(tmp_path, *flags, broken=unmeasured)
    assert code == 0, err
    placement.load(folder).close()
    assert len(list_models(folder)) == 2
    assert not {*models} & {*list_models(folder)}
    assert (folder / "notes" / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".deploy*"))


def test_foreign_files_are_kept(tmp_path, quick):
    file, folder = prepare(tmp_path, small.diamond()), tmp_path / "deploy"
    settings, elsewhere = config(file), tmp_path / "elsewhere"
    elsewhere.mkdir()

    def refused(message: str, settings: Settings = settings) -> None:
        with pytest.raises(UserError, match=message) as caught:
            task.run(settings, tmp_path)
        assert "\n" not in str(caught.value)

    folder.write_text("mine")
    refused("is a file; move it")
    assert folder.read_text() == "mine"
    folder.unlink()
    for name in ("deploy", ".deploy.new"):
        (tmp_path / name).symlink_to(elsewhere)
        refused("is a symbolic link")
        assert not [*elsewhere.iterdir()]
        (tmp_path / name).unlink()
    folder.mkdir()
    for name in ("affinities.json", "deploy.md", "placement.json"):
        (folder / name).write_text("mine")
        refused(f"{name}'.* move ")
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink()
        (folder / name).symlink_to(os.devnull)
        refused(name)
        assert (folder / name).is_symlink()
        (folder / name).unlink()
    task.run(settings, tmp_path)
    # Neither a link in place of a file of ours, nor an own name that the manifest lacks.
    models, foreign = list_models(folder), folder / "model-0123456789abcdef.bin"
    foreign.write_text("mine")
    (folder / models[0]).unlink()
    (folder / models[0]).symlink_to(os.devnull)
    refused(f"has '{models[0]}', which this program did not write")
    assert (folder / models[0]).is_symlink()
    (folder / models[0]).unlink()
    task.run(settings, tmp_path)
    assert foreign.read_text() == "mine"
    refused("that this task writes", config(folder / models[1]))
    assert os.path.exists(os.devnull)


def test_failures_keep_the_deployment(tmp_path, quick, monkeypatch):
    file, folder = prepare(tmp_path, small.diamond(), left=B), tmp_path / "deploy"
    task.run(config(file), tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(ov, "save_model", fail)
        with pytest.raises(OSError, match=r"write the model, \d+ MiB are free: .*No spa") as caught:
            task.run(config(file), tmp_path)
    assert "\n" not in str(caught.value)

    negated = frontend.prepare(frontend.load(str(file)))
    (result,) = negated.get_results()
    result.input(0).replace_source_output(ops.negative(result.input_value(0)).output(0))
    save = artifact.save
    monkeypatch.setattr(artifact, "save", lambda made, to: save(made._replace(model=negated), to))
    with pytest.raises(UserError, match="wrong outputs in form 'single'"):
        task.run(config(file), tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not list(tmp_path.glob(".deploy*"))


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


def test_readers_are_served_while_deploying(tmp_path, quick):
    task.run(config(prepare(tmp_path, small.diamond())), tmp_path)
    ready, done = tmp_path / "ready", tmp_path / "done"
    command = [sys.executable, "-c", READER, *map(str, (tmp_path / "deploy", ready, done))]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not ready.exists() and reader.poll() is None:
            time.sleep(0.05)
        for model in (small.shared_constant(), small.diamond(), small.shared_constant()):
            task.run(config(prepare(tmp_path, model)), tmp_path)
        done.touch()
        out, err = reader.communicate(timeout=600)
    finally:
        reader.kill()
        reader.wait()
    assert reader.returncode == 0, err
    assert int(out) > 1


def test_nan_outputs_are_reported(tmp_path, quick, capsys):
    def scaled(share: float) -> Settings:
        weights = np.where(np.arange(8) < 8 * share, np.nan, 1).astype(np.float32)
        source = ops.parameter([4, 8], np.float32, name="x")
        result = ops.result(ops.multiply(source, ops.constant(weights), name="scaled"))
        return config(prepare(tmp_path, ov.Model([result], [source], "scaled")))

    with pytest.raises(UserError, match="all outputs of the model are NaN"):
        task.run(scaled(1.0), tmp_path)
    assert not (tmp_path / "deploy").exists()
    record = task.run(scaled(0.25), tmp_path)
    message = "0.25 of the output values are NaN, as on the reference device"
    assert record["checks"]["NaN"].startswith(message)
    assert message in capsys.readouterr().out
    assert f"- NaN: {message}" in (tmp_path / "deploy" / "deploy.md").read_text()


def test_dynamic_models_are_deployed(tmp_path: Path, quick) -> None:
    file = prepare(tmp_path, test_network.dynamic(), shapes="x:4,8")
    task.run(config(file, input_shapes="x:4,8"), tmp_path)
    page = (tmp_path / "deploy" / "deploy.md").read_text()
    assert "- another shape: [5, 8] has right outputs, too\n" in page
    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    expected = test_network.infer_plain(x)
    with placement.load(tmp_path / "deploy") as net:
        np.testing.assert_allclose(net.infer([x])[0], expected, atol=0.1 * expected.std())


def test_stateful_models_are_not_streamed() -> None:
    settings = config(
        Path(test_network.DECODER), input_shapes="ids:1,8", objective="max_load", devices="host"
    )
    with pytest.raises(UserError, match=r"keeps a state from one .*; set objective='serial'"):
        loading.refuse_stateful_stream(settings, loading.load_network(settings))
