"""Faults that really happen to the worker, to its parent and to the disk: signals and limits."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import openvino as ov
import pytest

from placement.runtime import devices, tempdir
from placement.runtime.measurement import evaluate, local
from placement.runtime.measurement.request import (
    Candidate,
    Failure,
    HeteroChoice,
    Measure,
    Measurement,
)
from tests.runtime import small

ROOT = Path(__file__).parents[3]
HOST = devices.resolve("host")
A, B = (device.name for device in HOST)
ROUNDS = {"min_rounds": 6, "time_limit_s": 0.0}


@pytest.fixture(scope="module")
def model() -> ov.Model:
    return small.convolutions()


@pytest.fixture(scope="module")
def measurer(model):
    """A measurer that all tests share whose faults it survives."""
    with local.LocalMeasurer(model, HOST) as opened:
        yield opened


def on(model: ov.Model, device: str, **others: str) -> Candidate:
    return Candidate(small.everywhere(model, device, **others), HOST)


def kinds(outcomes: list[Measurement | Failure]) -> list[str]:
    return [o.stage if isinstance(o, Failure) else "measured" for o in outcomes]


def is_running(pid: int) -> bool:
    """A process whose first thread is a zombie lives on as long as it has others."""
    process = Path(f"/proc/{pid}")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(list((process / "task").iterdir())) > 1
    return False


def wait_until(condition, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@contextlib.contextmanager
def killing(opened: local.LocalMeasurer, candidate: int, times: int) -> Iterator[list[int]]:
    """Kills workers when each is at its candidate number `candidate`; yields those it killed."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < times and not over.wait(0.001):
            task = small.current_task(opened)
            if task is None or task[1] != candidate or task[0] in killed:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(task[0], signal.SIGSTOP)
                time.sleep(0.02)  # until it has stopped, so that what it is at cannot change
                if small.current_task(opened) == task:
                    os.kill(task[0], signal.SIGKILL)
                    killed.append(task[0])
                else:
                    os.kill(task[0], signal.SIGCONT)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Within it, writing a file beyond `size` fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_dead_idle_worker_is_replaced(measurer, model):
    assert kinds(measurer.ask(Measure([on(model, A)], **ROUNDS))) == ["measured"]
    pid = measurer.worker.process.pid
    os.kill(pid, signal.SIGSEGV)
    assert wait_until(lambda: not is_running(pid))
    assert set(measurer.ask(HeteroChoice(measurer.devices)).values()) == {A}
    assert measurer.worker.process.pid != pid


def test_hanging_idle_worker_is_replaced(measurer, model, monkeypatch):
    """Even if the request is larger than what a connection holds, so that sending it would wait.

    No candidate is blamed, not even that which the worker was at last.
    """
    large = Candidate({"no such operation" * 2**17: A}, HOST)
    monkeypatch.setattr(local, "_TIMEOUT_S", 2.0)
    measurer.ask(Measure([on(model, A)], **ROUNDS))
    pid = measurer.worker.process.pid
    os.kill(pid, signal.SIGSTOP)
    outcomes = measurer.ask(Measure([on(model, A), large, on(model, B)], **ROUNDS))
    assert measurer.worker.process.pid != pid
    assert kinds(outcomes) == ["measured", "compile", "measured"]
    assert not is_running(pid)


def test_killed_worker_costs_one_candidate(measurer, model, monkeypatch):
    """The number of deaths after which measuring ends does not count those of candidates."""
    monkeypatch.setattr(local, "_MAX_DEATHS", 2)
    candidates = [on(model, A), on(model, B), on(model, A, conv_2=B, relu_2=B)]
    with killing(measurer, 1, times=1) as killed:
        outcomes = measurer.ask(Measure(candidates, **ROUNDS))
    assert len(killed) == 1
    assert kinds(outcomes) == ["measured", "crash", "measured"], outcomes
    assert "SIGKILL" in outcomes[1].cause
    with killing(measurer, 1, times=2):  # the third candidate is then the second one left
        outcomes = measurer.ask(Measure(candidates, **ROUNDS))
    assert kinds(outcomes) == ["measured", "crash", "crash"], outcomes
    assert kinds(measurer.ask(Measure(candidates, **ROUNDS))) == ["measured"] * 3


def test_repeated_deaths_end_measuring(measurer, model, monkeypatch):
    """The worker is killed before it has read what it is asked."""
    monkeypatch.setattr(local, "_MAX_DEATHS", 2)
    ask, killed, times = local.WorkerProcess.ask, [], 1

    def killed_first(worker: local.WorkerProcess, *request) -> Iterator[tuple]:
        if len(killed) < times:
            killed.append(worker.process.pid)
            os.kill(worker.process.pid, signal.SIGKILL)
        yield from ask(worker, *request)

    monkeypatch.setattr(local.WorkerProcess, "ask", killed_first)
    request = Measure([on(model, A), on(model, B)], **ROUNDS)
    assert kinds(measurer.ask(request)) == ["measured"] * 2
    assert len(killed) == 1
    times = 99
    with pytest.raises(ChildProcessError, match="SIGKILL"):
        measurer.ask(request)
    assert len(set(killed)) == len(killed) == 1 + 2
    times = 0
    assert kinds(measurer.ask(request)) == ["measured"] * 2


PARENT = """
import threading, time
from placement.runtime import devices
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import Candidate, Measure
from tests.runtime import small

host = devices.resolve("host")
model = small.convolutions()
everywhere = Candidate(small.everywhere(model, host[0].name), host)
opened = [LocalMeasurer(model, host) for _ in range(2)]
for each in opened:
    request = Measure([everywhere], min_rounds=10**9, time_limit_s=1000.0)  # does not end
    threading.Thread(target=each.ask, args=(request,)).start()
for each in opened:
    while not (task := small.current_task(each)) or task[1] < 0:
        time.sleep(0.01)
    print(task[0], flush=True)
"""


def test_killed_parent_ends_its_workers(tmp_path, monkeypatch):
    """One of them computes, one hangs. The folders that they leave go when the next is made, which
    spares those in use.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    computing, hung = (int(parent.stdout.readline()) for _ in range(2))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    foreign = tmp_path / "placement-worker-notes"
    foreign.mkdir()
    for name in ("lock", "model.xml", "notes.txt"):
        (foreign / name).touch()
    used = set(tmp_path.iterdir()) - {foreign}
    assert len(used) == 2
    tempdir.TempDir().close()
    assert all(folder.exists() for folder in used)
    os.kill(hung, signal.SIGSTOP)
    assert is_running(computing)
    assert is_running(hung)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: not is_running(computing) and not is_running(hung))
    assert all(folder.exists() for folder in used)
    tempdir.TempDir().close()
    assert list(tmp_path.iterdir()) == [foreign]


def test_full_disk_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with file_size_limit(2**20), pytest.raises(OSError, match="cannot write the model") as raised:
        local.LocalMeasurer(small.convolutions(channels=256), HOST)
    assert Path(raised.value.filename).parent == tmp_path
    assert "MiB are free" in raised.value.strerror
    assert list(tmp_path.iterdir()) == []


def test_full_disk_keeps_cached_records(tmp_path):
    file = tmp_path / "measurements.jsonl"
    cache = evaluate.MeasurementCache(file)
    cache.add("first", stage="compile", cause="no")
    with file_size_limit(file.stat().st_size + 10), pytest.raises(OSError, match=file.name):
        cache.add("second", stage="compile", cause="no")
    again = evaluate.MeasurementCache(file)
    assert (len(again), again.get("first")["cause"]) == (1, "no")
    again.add("second", stage="infer", cause="why")
    assert evaluate.MeasurementCache(file).get("second")["cause"] == "why"
    assert len(evaluate.MeasurementCache(file)) == 2


def test_interrupt_ends_starting_worker(tmp_path, monkeypatch):
    started = []

    def interrupted(worker: local.WorkerProcess, seconds: float) -> None:
        started.append(worker.process)
        raise KeyboardInterrupt

    monkeypatch.setattr(local.WorkerProcess, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local.WorkerProcess(tmp_path)
    assert [worker.returncode for worker in started] == [-signal.SIGKILL]
