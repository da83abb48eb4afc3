"""Run directories: corrupt files, foreign files, links, and two commands at once."""

import errno
import functools
import os
import shutil
import signal
import time
from pathlib import Path

import flax.serialization
import numpy as np
import pytest

from placement.errors import UserError
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, workdirs
from placement.pipeline.console import progress
from placement.pipeline.results import bounds, outputs
from tests.experiments import command
from tests.experiments.command import run, start

FLAGS = (
    *("--config.graph=synthetic:family=layered,ops=12,seed=1", "--config.devices=roofline:cpu,gpu"),
    *("--config.method=local_search", "--config.budget=34"),
)
ENDLESS = "--config.budget=2000000000"
TORN = b'{"method": "hsdag", "seed": 0}\n'  # a complete record has more keys
GARBAGE = {
    "cut short": lambda data: data[: len(data) // 2],
    "another file": lambda data: b'["x", {"y": null}]\n',
    "nested": lambda data: b"[" * 200_000 + b"\n",
    "other shapes": lambda data: flax.serialization.to_bytes({"elite": np.zeros((3, 3), np.int64)}),
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


@pytest.fixture
def claim(capsys):
    """Returns a function that claims a directory, and returns what is printed."""

    def claim(workdir: Path, *graphs: str) -> str:
        try:
            workdirs.claim(workdir, progress.Display(progress.WARNING), graphs)
        finally:
            workdirs.release(workdir)
        return " ".join(capsys.readouterr().out.split())

    return claim


@pytest.mark.parametrize(
    ("name", "kind"),
    [(bounds.FILE, "garbage"), ("metrics.jsonl", "directory"), (bounds.FILE, "pipe")],
)
def test_unreadable_files_are_set_aside(name, kind, copy, claim):
    path = copy / name
    path.unlink()
    if kind == "garbage":
        path.write_bytes(GARBAGE["another file"](b""))
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert f"{name} cannot be read" in (out := claim(copy))
    assert f"set aside as {name}.corrupt" in out
    assert (copy / f"{name}.corrupt").exists()
    assert not path.exists() or path.is_file()
    assert claim(copy) == ""


def test_valid_lines_are_kept(copy, claim):
    path = copy / "metrics.jsonl"
    valid = path.read_bytes()
    path.write_bytes(valid + TORN)
    out = claim(copy)
    assert "metrics.jsonl cannot be read" in out
    assert "metrics.jsonl.corrupt" in out
    assert path.read_bytes() == valid
    assert (copy / "metrics.jsonl.corrupt").read_bytes() == valid + TORN


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
    out = " ".join(capsys.readouterr().out.split())
    assert "set aside as state.msgpack.corrupt" in out
    assert ("elite" in out) == (garbage == "other shapes")
    assert path.with_name("state.msgpack.corrupt").read_bytes() == broken
    assert not path.exists()


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
    given, workdir = tmp_path / "given.json", tmp_path / "run"
    workdir.mkdir()
    for path in (given, workdir / "placement.json"):
        path.write_bytes(broken)
    resnet = "--config.graph=resnet:depth=18,size=32"
    for path, flags in (
        (given, (resnet, f"--config.costs={given}", "--config.evaluate=simulate")),
        (given, (*FLAGS, "--config.method=zero_shot", f"--config.init_from={given}")),
        (given, (f"--config.graph={given}",)),
        (workdir / "placement.json", (resnet, "--task=deploy")),
    ):
        code, _, err = run(workdir, *flags)
        assert code == 2, (flags, err)
        (line,) = err.splitlines()
        assert str(path) in line or path.stem in line
        assert path.read_bytes() == broken


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


@pytest.mark.parametrize("name", [workdirs.LOCK, "metrics.jsonl", "checkpoint", "interrupted"])
def test_links_are_refused(name, tmp_path, claim):
    outside, workdir = tmp_path / "outside", tmp_path / "run"
    workdir.mkdir()
    if name in (workdirs.LOCK, "metrics.jsonl"):
        outside.write_text("")
    else:
        outside.mkdir()
    (workdir / name).symlink_to(outside)
    with pytest.raises(UserError, match=f"{name}' is .* link"):
        claim(workdir)
    assert list(outside.iterdir()) == [] if outside.is_dir() else outside.read_text() == ""


def test_graphs_are_not_overwritten(tmp_path, claim):
    workdir = tmp_path / "run"
    workdir.mkdir()
    for suffix in ("xml", "bin"):
        (workdir / f"placed.{suffix}").write_text("mine")
        (tmp_path / f"link.{suffix}").symlink_to(workdir / f"placed.{suffix}")
    (workdir / "summary.json").write_text("mine")
    for graph in (workdir / "placed.xml", tmp_path / "link.xml", workdir / "summary.json"):
        with pytest.raises(UserError, match="this task writes; move the model, or set another wor"):
            claim(workdir, str(graph))
    assert {path.read_text() for path in workdir.iterdir()} == {"mine"}


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


def test_temporary_files_are_removed(copy, claim):
    names = [".summary.json.4711.tmp", "checkpoint/.a.msgpack.4711.tmp", ".notes.tmp"]
    (copy / "checkpoint").mkdir(exist_ok=True)
    for name in names:
        (copy / name).touch()
    claim(copy)
    assert [(copy / name).exists() for name in names] == [False, False, True]


def read_only() -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    access = os.access
    os.access = lambda path, mode, **how: not mode & os.W_OK and access(path, mode, **how)
    os.replace = os.rename = os.unlink = os.mkdir = refuse


def test_unwritable_runs_are_printed(copy):
    code, out, err = command.answer("--task=report", f"--workdir={copy}", broken=read_only)
    assert code == 3
    assert "random" in out
    assert "Read-only file system" in err
    code, _, err = run(copy, *FLAGS, broken=read_only)
    assert code == 2
    assert "cannot be written to: permission denied" in err
