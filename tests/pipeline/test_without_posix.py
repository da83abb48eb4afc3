"""The path from a model to a loaded network on a system without POSIX."""

import ast
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from placement.runtime.measurement.worker import trials
from tests.runtime import small

ROOT = Path(__file__).resolve().parents[2]
# Modules and names of `os` and `signal` that Windows lacks. `os.kill` it has, but there any number
# ends the process.
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios"}
NAMES = {
    *("O_NOFOLLOW", "O_NONBLOCK", "SIGKILL", "fork", "forkpty", "geteuid", "getloadavg"),
    *("getuid", "sched_getaffinity", "sched_setaffinity", "sched_yield", "kill", "killpg"),
    *("mkfifo", "setsid", "sysconf", "uname", "waitid"),
}
EXEMPT = {  # each stands behind a test of the system
    ("experiments/benchmarks/scale.py", "resource"),
    ("placement/runtime/processors.py", "SIGKILL"),
    ("placement/runtime/execution/workers.py", "sched_setaffinity"),
    ("placement/runtime/measurement/worker/trials.py", "sched_getaffinity"),
}


def uses_of_posix(source: str) -> set[str]:
    """Names of modules that a file imports and attributes that it uses, of those above."""
    uses = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            uses |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            uses |= {str(node.module)} & MODULES
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "signal"):
            uses |= {node.attr} & NAMES
    return uses


def test_no_file_needs_posix():
    uses = {
        (path.relative_to(ROOT).as_posix(), name)
        for top in ("placement", "experiments", "configs")
        for path in (ROOT / top).rglob("*.py")
        for name in uses_of_posix(path.read_text("utf-8"))
    }
    assert uses == EXEMPT


@pytest.mark.nightly
def test_models_are_placed_without_posix(tmp_path):
    ov.save_model(small.convolutions(), tmp_path / "model.xml", compress_to_fp16=False)
    # Every process of Python begins with this file: the program's, the one that the start method
    # spawn makes and the one that measures.
    (tmp_path / "sitecustomize.py").write_text("import tests.pipeline.without_posix\n")
    program = [sys.executable, "-m", "tests.pipeline.without_posix"]
    result = subprocess.run(
        [*program, str(tmp_path / "model.xml"), str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    printed = [line for line in result.stdout.splitlines() if line.startswith("# ")]
    assert "# blocked in the worker" in result.stderr
    (labels,) = [line for line in printed if line.startswith("# devices ")]
    assert labels.count("[host, ") == 2  # and no core, because no thread can be bound to it
    assert "core" not in labels
    (error,) = [float(line.split()[-1]) for line in printed if line.startswith("# error ")]
    assert error < 0.1
    assert "# imported" in printed  # and nothing after it


def test_threads_are_timed_without_linux(monkeypatch):
    monkeypatch.setattr(trials, "_HAS_SCHEDULER_STATISTICS", False)
    stop, native_ids = threading.Event(), []

    def compute() -> None:
        native_ids.append(str(threading.get_native_id()))
        matrix = np.ones((300, 300))
        while not stop.is_set():
            matrix @ matrix

    thread = threading.Thread(target=compute)
    thread.start()

    class Request:
        def infer(self) -> None:
            time.sleep(0.3)

    try:
        shares = trials.measure_busy_shares(Request(), lambda: None)
    finally:
        stop.set()
        thread.join()
    assert shares[native_ids[0]] > 0.1
    assert shares[str(threading.get_native_id())] < 0.1
