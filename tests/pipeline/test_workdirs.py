"""Run directories: corrupt files, and two commands at once."""

import errno
import functools
import json
import os
import shutil
import signal
import time
from pathlib import Path

import flax.serialization
import numpy as np
import openvino as ov
import pytest

from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, workdirs
from placement.pipeline.console import progress
from placement.pipeline.results import bounds, outputs
from tests.experiments import command
from tests.experiments.command import check_summary, run, start
from tests.pipeline.test_solve import WORKLOAD
from tests.runtime import small

FLAGS = (
    *("--config.graph=synthetic:family=layered,ops=12,seed=1", "--config.devices=roofline:cpu,gpu"),
    *("--config.method=local_search", "--config.budget=34"),
)
# A learned method writes a checkpoint; a step of learning takes seconds to trace.
LEARNED = (*FLAGS, "--config.method=placeto:hidden_size=2,rounds=1", "--config.budget=18")
ENDLESS = "--config.budget=2000000000"
TORN = b'{"method": "hsdag", "seed": 0}\n'  # a complete record has more keys
GARBAGE = {
    "cut short": lambda data: data[: len(data) // 2],
    "another file": lambda data: b'["x", {"y": null}]\n',
    "nested": lambda data: b"[" * 200_000 + b"\n",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("workdirs") / "run"
    code, _, err = run(workdir, *FLAGS)
    assert code == 0, err
    return workdir


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def check_set_aside(workdir: Path, path: Path, broken: bytes, flags: tuple[str, ...]) -> str:
    """Runs a command twice on a broken file: only the first sets it aside; returns its line."""
    path.write_bytes(broken)
    code, out, err = run(workdir, *flags)
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if str(path) in line]
    assert f"set aside as {path.name}.corrupt" in line
    assert path.with_name(f"{path.name}.corrupt").read_bytes() == broken
    check_summary(workdir)
    code, out, err = run(workdir, *flags)
    assert code == 0, err
    assert "set aside" not in out
    return line


def test_unreadable_bounds_are_set_aside(copy):
    path = copy / bounds.FILE
    before = path.read_bytes()
    check_set_aside(copy, path, GARBAGE["another file"](before), FLAGS)
    assert path.read_bytes() == before


def test_checkpoints_of_other_shapes(tmp_path):
    code, _, err = run(tmp_path, *LEARNED)
    assert code == 0, err
    (path,) = tmp_path.glob("checkpoint/*.msgpack")
    content = flax.serialization.msgpack_restore(path.read_bytes())
    content["0"]["elite"] = np.zeros((3, 3), np.int32)
    broken = flax.serialization.msgpack_serialize(content)
    line = check_set_aside(tmp_path, path, broken, LEARNED)
    assert "elite" in line
    assert "(3, 3)" in line


@pytest.mark.parametrize("garbage", GARBAGE)
def test_unreadable_checkpoints_are_set_aside(tmp_path, garbage, capsys):
    path, state = tmp_path / "checkpoint" / "state.msgpack", {"elite": np.arange(12)}

    def restore() -> dict[str, np.ndarray] | None:
        make = functools.partial(restored, state)
        return checkpoints.restore(path, make, progress.Display(progress.WARNING))

    assert restore() is None
    checkpoints.save(path, state)
    np.testing.assert_array_equal(restore()["elite"], state["elite"])
    broken = GARBAGE[garbage](path.read_bytes())
    path.write_bytes(broken)
    assert restore() is None
    assert "set aside as state.msgpack.corrupt" in " ".join(capsys.readouterr().out.split())
    assert path.with_name("state.msgpack.corrupt").read_bytes() == broken
    assert not path.exists()


def test_valid_lines_are_kept(copy):
    path = copy / "metrics.jsonl"
    sound = path.read_bytes()
    path.write_bytes(sound + TORN)
    code, out, err = run(copy, *FLAGS, "--config.method=random")  # it logs nothing
    assert code == 0, err
    assert "set aside" not in err
    (message,) = [line for line in out.splitlines() if f"{path} cannot be read" in line]
    assert "metrics.jsonl.corrupt" in message
    assert path.read_bytes() == sound
    assert (copy / "metrics.jsonl.corrupt").read_bytes() == sound + TORN


def test_directories_are_set_aside(copy):
    for name in ("metrics.jsonl", bounds.FILE):
        (copy / name).unlink()
        (copy / name).mkdir()
    code, out, err = run(copy, *FLAGS)
    assert code == 0, err
    assert out.count("it is a directory") == 2
    assert (copy / bounds.FILE).is_file()


def test_reports_name_unreadable_files(copy):
    names = ("details.json", "metrics.jsonl")
    for name in names:
        (copy / name).write_bytes(b"[1, 2]\n")
    code, out, err = command.answer("--task=report", f"--workdir={copy}", plots=True)
    assert code == 0, err
    assert (copy / "report.html").exists()
    for name in names:
        assert f"{str(copy / name)!r} cannot be read" in out


def test_users_unreadable_files_are_named(tmp_path):
    broken = GARBAGE["cut short"](b'{"profiles": [], "crossings": {}, "placement": {}}')
    given = tmp_path / "given.json"
    given.write_bytes(broken)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "placement.json").write_bytes(broken)
    small = "--config.graph=resnet:depth=18,size=32"
    for path, flags in (
        (given, (small, f"--config.costs={given}", "--config.evaluate=simulate")),
        (given, (*FLAGS, "--config.method=zero_shot", f"--config.init_from={given}")),
        (given, (f"--config.graph={given}",)),
        (tmp_path / "run" / "placement.json", (small, "--task=deploy")),
    ):
        workdir = tmp_path / "run" if "--task=deploy" in flags else tmp_path / "new"
        code, _, err = run(workdir, *flags)
        assert code == 2, (flags, err)
        (line,) = err.splitlines()
        assert str(path) in line or path.stem in line
    assert given.read_bytes() == broken


def test_second_commands_are_refused(tmp_path):
    first = start(tmp_path, *FLAGS, ENDLESS)
    try:
        deadline = time.monotonic() + 600
        while not (tmp_path / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        code, _, err = run(tmp_path, *FLAGS)
        assert code == 2
        (line,) = err.splitlines()
        assert line.startswith(f"error: workdir {str(tmp_path)!r} is in use by process {first.pid}")
        assert not (tmp_path / "summary.json").exists()
        code, _, err = command.answer("--task=list", f"--workdir={tmp_path}")
        assert code == 0, err
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    code, _, err = run(tmp_path, *FLAGS)
    assert code == 0, err


@pytest.mark.parametrize(
    "name", [workdirs.LOCK, "metrics.jsonl", "tensorboard", "checkpoint", "interrupted"]
)
def test_links_are_refused(name, tmp_path):
    outside, workdir = tmp_path / "outside", tmp_path / "run"
    workdir.mkdir()
    if name not in (workdirs.LOCK, "metrics.jsonl"):
        outside.mkdir()
    else:
        outside.write_text("")
    (workdir / name).symlink_to(outside)
    code, _, err = run(workdir, *(LEARNED if name == "checkpoint" else FLAGS))
    assert code == 2
    assert err.splitlines()[-1].startswith("error: ")
    assert name in err.splitlines()[-1]
    assert list(outside.iterdir()) == [] if outside.is_dir() else outside.read_text() == ""


def test_named_pipes_do_not_block(tmp_path):
    os.mkfifo(tmp_path / bounds.FILE)
    code, out, err = run(tmp_path, *FLAGS)
    assert code == 0, err
    assert "named pipe" in out
    assert (tmp_path / f"{bounds.FILE}.corrupt").is_fifo()


@pytest.mark.parametrize("name", ["placed.xml", "link.xml", "summary.json"])
def test_models_are_not_overwritten(name, tmp_path):
    workdir, path = tmp_path / "run", tmp_path / "run" / name
    workdir.mkdir()
    flags = [f"--config.graph={path}"]
    if path.suffix == ".xml":
        ov.save_model(small.diamond(), workdir / "placed.xml")
        if name == "link.xml":
            flags = [f"--config.graph={tmp_path / name}"]
            (tmp_path / name).symlink_to(workdir / "placed.xml")
            (tmp_path / "link.bin").symlink_to(workdir / "placed.bin")
        flags += ["--config.devices=roofline:cpu,gpu"]
    else:
        path.write_text(json.dumps(WORKLOAD))
        flags += ["--config.devices=auto"]
    before = {path.name: path.read_bytes() for path in workdir.iterdir()}
    code, _, err = run(workdir, *flags, config="configs/solvers.py")
    assert code == 2
    *_, line = err.splitlines()
    assert "that this task writes; move the model, or set another workdir" in line
    assert {path.name: path.read_bytes() for path in workdir.iterdir()} == before


def test_outputs_are_listed(finished):
    """Only files that could be a graph count; other tasks write the rest of the list."""
    written = {path.name for path in finished.iterdir() if path.suffix in (".json", ".xml")}
    assert written
    assert written <= set(workdirs.OUTPUTS)


def test_users_files_are_kept(finished, tmp_path):
    separate = tmp_path / outputs.INTERRUPTED
    shutil.copytree(finished, separate)
    for name in (".lock", "metrics.jsonl", "bounds.json", "advice.json"):  # of a claimed one alone
        (separate / name).unlink()
    for name in ("checkpoint", "tensorboard"):
        shutil.rmtree(separate / name, ignore_errors=True)
    (separate / "notes.txt").write_text("mine")
    display = progress.Display(progress.WARNING)
    for left in (["notes.txt"], []):
        assert outputs.directory(tmp_path, {"complete": True}, display) == tmp_path
        assert [path.name for path in separate.glob("*")] == left
        (separate / "notes.txt").unlink(missing_ok=True)
    assert not separate.exists()


def read_only() -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    access = os.access
    os.access = lambda path, mode, **how: not mode & os.W_OK and access(path, mode, **how)
    os.replace = os.rename = os.unlink = os.mkdir = refuse


def test_temporary_files_are_removed(copy):
    names = [".summary.json.4711.tmp", "checkpoint/.a.msgpack.4711.tmp", ".notes.tmp"]
    (copy / "checkpoint").mkdir(exist_ok=True)
    for name in names:
        (copy / name).touch()
    workdirs.claim(copy, progress.Display(progress.WARNING))
    workdirs.release(copy)
    assert [(copy / name).exists() for name in names] == [False, False, True]


def test_unwritable_runs_are_printed(copy):
    code, out, err = command.answer("--task=report", f"--workdir={copy}", broken=read_only)
    assert code == 3
    assert "random" in out
    assert "Read-only file system" in err
    code, _, err = run(copy, *FLAGS, broken=read_only)
    assert code == 2
    assert "cannot be written to: permission denied" in err
