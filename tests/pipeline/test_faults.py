"""Real failures of the command line: SIGKILL at several moments, and full disks."""

import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.serialization
import onnx
import pytest

from placement.learning import trainer
from tests.experiments.command import run, start

ROOT = Path(__file__).parents[2]
SQUEEZENET = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
SIMULATED = (
    "--config.graph=synthetic:family=layered,ops=12,seed=1",
    "--config.devices=roofline:cpu,gpu",
    "--config.method=scheduler:hidden_size=4,num_samples=8,episode_steps=1",
    "--config.time_limit_s=1200",  # a busy machine compiles for longer than the default limit
)
ENDLESS = "--config.budget=2000000000"


def kill_when(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    """Kills the process while the condition holds: stops it first, then checks again."""
    deadline = time.monotonic() + 600
    while True:
        time.sleep(0.0005)
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        if not condition():
            continue
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if condition():
            break
        process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def unfinished(workdir: Path) -> list[Path]:
    return list((workdir / "checkpoint").glob(".*.tmp"))


def saved_step(workdir: Path) -> int:
    """Returns the step of the readable checkpoint."""
    (path,) = (workdir / "checkpoint").glob("*.msgpack")
    progress = flax.serialization.msgpack_restore(path.read_bytes())["0"]
    return int(progress["step"])


def check_whole(workdir: Path) -> None:
    for path in workdir.rglob("*.json"):
        json.loads(path.read_text())


def log(workdir: Path) -> list[dict[str, Any]]:
    """Returns the finished lines of the log, without the times."""
    lines = (workdir / "metrics.jsonl").read_text().split("\n")[:-1]
    return [{k: v for k, v in json.loads(line).items() if k != "elapsed_s"} for line in lines]


def contents(workdir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(workdir)): path.read_bytes()
        for path in workdir.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run that was killed twice and then finished; see the first test."""
    workdir = tmp_path_factory.mktemp("killed") / "run"
    process = start(workdir, *SIMULATED, ENDLESS)
    kill_when(process, lambda: any((workdir / "checkpoint").glob("*.msgpack")))
    check_whole(workdir)
    first, logged = saved_step(workdir), log(workdir)
    assert 1 <= first <= len(logged) <= first + trainer.CHUNK

    grown = (workdir / "metrics.jsonl").stat().st_size + 2**15

    def writes() -> bool:
        return bool(unfinished(workdir)) and (workdir / "metrics.jsonl").stat().st_size > grown

    kill_when(start(workdir, *SIMULATED, ENDLESS), writes)
    check_whole(workdir)
    second, again = saved_step(workdir), log(workdir)
    assert unfinished(workdir)
    assert first < second < len(again) <= second + trainer.CHUNK
    assert again[: len(logged)] == logged

    code, _, err = run(workdir, *SIMULATED, f"--config.budget={8 * len(again) + 80}")
    assert code == 0, err
    final = log(workdir)
    assert [record["step"] for record in final] == list(range(1, len(final) + 1))
    assert final[: len(again)] == again  # those after the checkpoint were taken again, alike
    assert len(final) > len(again)
    return workdir


def test_killed_searches_continue(finished):
    (row,) = [
        row
        for row in json.loads((finished / "summary.json").read_text())["rows"]
        if row["method"].startswith("scheduler")
    ]
    assert row["status"] == "finished"
    assert row["evaluations"] == log(finished)[-1]["evaluations"]
    assert row["predicted_s"] == pytest.approx(log(finished)[-1]["best_s"])
    assert not unfinished(finished)  # what the kill left was cleared


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_files_that_cannot_grow(finished):
    before = contents(finished)
    limit = 2**15  # the log is larger, and so is the checkpoint
    assert len(before["metrics.jsonl"]) > limit
    code, _, err = run(finished, *SIMULATED, ENDLESS, broken=functools.partial(limit_files, limit))
    assert code == 3
    (line,) = [line for line in err.splitlines() if "xla_bridge" not in line]
    assert line.startswith(f"error: {finished / 'metrics.jsonl'}: File too large; ")
    assert "the same command continues" in line
    after = contents(finished)
    assert {name: after.get(name) for name in before} | {".lock": b""} == before | {".lock": b""}
    assert {name.partition("/")[0] for name in after.keys() - before.keys()} <= {"interrupted"}
    check_whole(finished)


def can_mount() -> bool:
    probe = "mount -t tmpfs -o size=16k tmpfs /mnt"
    tried = shutil.which("unshare") and subprocess.run(
        ["unshare", "-rm", "sh", "-c", probe], capture_output=True, check=False
    )
    return bool(tried) and tried.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs unprivileged user namespaces")
def test_full_disks_leave_whole_files(tmp_path):
    """The file system of 16 KiB disappears with the process, so its files are copied."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    script = """
        mount -t tmpfs -o size=16k tmpfs "$1" && disk=$1 copy=$2 && shift 2 && "$@"
        code=$?; cp -r "$disk" "$copy"; exit $code
    """
    command = [sys.executable, "-m", "experiments.main", "--config=configs/smoke.py"]
    flags = [*SIMULATED, "--config.method=random", f"--workdir={disk / 'run'}"]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(disk), str(copy), *command, *flags],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"error: {disk / 'run'}/")
    assert ": No space left on device; " in line
    written = contents(copy / "run")
    assert "config.json" in written
    assert not any(name.endswith(".tmp") for name in written)
    check_whole(copy)


def workers(parent: int) -> list[int]:
    result = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in task.read_text().split():
            if (
                b"placement.runtime.measurement.worker"
                in Path(f"/proc/{child}/cmdline").read_bytes()
            ):
                result.append(int(child))
    return result


def test_killed_workers_are_failures(tmp_path):
    flags = (f"--config.graph={SQUEEZENET}", "--config.devices=host", "--config.method=random")
    process = start(tmp_path, *flags)
    deadline = time.monotonic() + 600
    while not (result := workers(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(result[0], signal.SIGKILL)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 3, err
    (line,) = err.strip().splitlines()
    assert line.startswith("error: ")
    assert "ended by signal SIGKILL" in line
    assert "the same command continues" in line
    assert not (tmp_path / "profile.json").exists()
    check_whole(tmp_path)
