"""A fault of the program is reported as one, and the results before it are kept.

Each fault is injected into the process of the command, or into the measuring worker.
"""

import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from tests.experiments.command import check_summary, run
from tests.pipeline import test_solve
from tests.runtime import small

SOLVE = ("--task=solve", "--config.devices=auto", "--config.budget=320")
NUMPYS = "'list' argument must have no negative elements"


def solver() -> None:
    from placement import methods

    def find(*_: Any) -> Any:
        return np.bincount([-1])  # a ValueError of NumPy's

    methods.METHODS["genetic"] = methods.METHODS["genetic"]._replace(source=find)


def solver_of_one_seed() -> None:
    from placement import methods

    sound = methods.METHODS["genetic"].load()

    def find(problem: Any, seed: int, limits: Any) -> Any:
        if seed == 0:
            raise KeyError(seed)
        return sound(problem, seed, limits)

    methods.METHODS["genetic"] = methods.METHODS["genetic"]._replace(source=find)


def figure() -> None:
    from placement.reporting.figures import plots

    plots.methods = lambda rows: 1 / 0


def worker(folder: Path) -> None:
    """Every Python process loads a module of this name when it starts, if its path has one."""
    sys.path.insert(0, str(folder))


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(test_solve.WORKLOAD))
    return f"--config.graph={path}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "branches.xml"
    ov.save_model(small.branches(size=16, length=2), path)
    return f"--config.graph={path}"


def traceback_of(workdir: Path, err: str) -> str:
    """Returns fault.txt, whose traceback is printed too; the last line names the file."""
    (line,) = [line for line in err.splitlines() if "fault of the program" in line]
    assert err.splitlines()[-1] == line
    assert line.endswith(f"; the traceback is in {workdir / 'fault.txt'}")
    text = (workdir / "fault.txt").read_text()
    assert text.partition("\n\n")[2].strip() in err
    return text


def solved(workload: str, workdir: Path, objective: str, methods: str, **how: Any) -> Any:
    flags = (*SOLVE, workload, f"--config.objective={objective}", f"--config.methods={methods}")
    return run(workdir, *flags, config="configs/solvers.py", **how)


def test_solver_faults_are_rows(workload: str, tmp_path: Path) -> None:
    workdir, names = tmp_path / "run", "ideals_dp,genetic,local_search"
    code, out, err = solved(workload, workdir, "max_load", names, broken=solver)
    assert code == 1
    written = traceback_of(workdir, err)
    assert f"ValueError: {NUMPYS}" in err
    assert NUMPYS in written
    assert "while searching with genetic" in written
    assert "np.bincount([-1])" in written
    rows = {row["method"]: row for row in check_summary(workdir)["rows"]}
    assert rows["genetic"]["status"] == f"failed: fault: ValueError: {NUMPYS}"
    assert rows["genetic"]["predicted_s"] is None
    assert rows["ideals_dp"]["predicted_s"] == 9 <= rows["local_search"]["predicted_s"]
    assert json.loads((workdir / "placement.json").read_text())["method"] == "ideals_dp"
    assert "ideals_dp" in out
    code, _, err = solved(workload, workdir, "max_load", names)
    assert (code, (workdir / "fault.txt").exists()) == (0, False), err


def test_reporting_faults_drop_files(workload: str, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    how = {"broken": figure, "plots": True}
    code, out, err = solved(workload, workdir, "max_load", "ideals_dp", **how)
    assert code == 1
    traceback_of(workdir, err)
    assert "ideals_dp" in out
    check_summary(workdir)
    assert (workdir / "report.html").exists()
    assert not (workdir / "figures/methods.svg").exists()
    assert (workdir / "figures/timeline.svg").exists()


def test_cells_with_faults_repeat(workload: str, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    flags = (workload, "--task=compare", "--config.devices=auto", "--config.objective=max_load")
    flags += ("--config.methods=genetic", "--config.seeds=2", "--config.budget=320")
    code, _, err = run(workdir, *flags, config="configs/solvers.py", broken=solver_of_one_seed)
    assert code == 1
    assert "KeyError: 0" in traceback_of(workdir, err)
    finished = [path.parent.name for path in workdir.glob("cells/*/*/asked.json")]
    assert finished == ["seed-1"]
    assert len(check_summary(workdir)["rows"]) == 2 * 4
    code, out, err = run(workdir, *flags, config="configs/solvers.py")
    assert code == 0, err
    assert out.count("finished before") == 1


@pytest.mark.parametrize(
    ("where", "result"),
    [
        ("measurement.worker.profile.profile_devices", False),
        ("measurement.worker.trials.measure_busy_shares", True),
    ],
)
def test_worker_faults_have_tracebacks(
    where: str, result: bool, model: str, tmp_path: Path
) -> None:
    room, module, name = where.rsplit(".", 2)
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'placement.runtime.measurement.worker' in sys.orig_argv:\n"
        f"    from placement.runtime.{room} import {module}\n"
        "    def broken(*_, **__):\n"
        "        return {}['it']\n"
        f"    {module}.{name} = broken\n"
    )
    workdir = tmp_path / "run"
    broken = functools.partial(worker, folder)
    flags = (model, "--config.devices=host", "--config.method=local_search")
    code, _, err = run(workdir, *flags, broken=broken)
    assert code == 1
    written = traceback_of(workdir, err)
    assert "KeyError: 'it'" in err
    assert "in broken" in written
    assert "local.py" in written
    assert (workdir / "summary.json").exists() == result
    if result:
        rows = {row["method"]: row for row in check_summary(workdir)["rows"]}
        assert rows["local_search"]["predicted_s"] > 0
        assert rows["local_search"]["measured_s"] is None
        assert (workdir / "placement.json").exists()
