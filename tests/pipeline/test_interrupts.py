"""Ctrl-C in a command: results are kept, and never replace complete ones."""

import functools
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino as ov

from tests import fakes
from tests.experiments.command import check_summary, run
from tests.runtime import small

GRAPH = "--config.graph=synthetic:family=layered,ops=24,seed=1"
SOLVE = ("--task=solve", GRAPH, "--config.devices=roofline:cpu,gpu,gpu", "--config.budget=3000000")
SOLVE += ("--config.time_limit_s=100",)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def at_step(number: int) -> None:
    """Sends Ctrl-C when a search reports progress for the nth time."""
    from placement.solvers import limits

    tell, reports = limits.SearchLimits.report, []

    def telling(self: Any, *step: Any) -> None:
        tell(self, *step)
        reports.append(step)
        if len(reports) == number:
            ctrl_c()

    limits.SearchLimits.report = telling  # type: ignore[method-assign]


def in_native_code() -> None:
    """Sends one Ctrl-C, a second after a solver in C++ was first called."""
    import importlib

    native = importlib.import_module("placement.solvers.native")
    call = native.call
    timer = threading.Timer(1.0, ctrl_c)

    def calling(*arguments: Any) -> Any:
        if timer.ident is None:  # not started; a second Ctrl-C would end the run
            timer.start()
        return call(*arguments)

    native.call = calling


def beyond(evaluations: int, act: Callable[[], None]) -> None:
    """Acts whenever a search reports more evaluations."""
    from placement.solvers import limits

    tell = limits.SearchLimits.report

    def telling(self: Any, evaluated: int, *step: Any) -> None:
        tell(self, evaluated, *step)
        if evaluated > evaluations:
            act()

    limits.SearchLimits.report = telling  # type: ignore[method-assign]


def twice() -> None:
    """The second Ctrl-C raises in the middle of a step."""

    def act() -> None:
        ctrl_c()
        ctrl_c()

    beyond(1000, act)


def fault() -> None:
    def act() -> None:
        raise ZeroDivisionError

    beyond(1000, act)


def lns_and_heft(workdir: Path, broken: Callable[[], None]) -> tuple[int, dict[str, Any]]:
    """Returns the exit code and the summary."""
    flags = (*SOLVE, "--config.objective=makespan", "--config.methods=lns,heft")
    code, _, _ = run(workdir, *flags, config="configs/solvers.py", broken=broken)
    return code, check_summary(workdir)


def while_measuring() -> None:
    from placement.pipeline.results import verify

    def measure(*_: Any) -> Any:
        raise KeyboardInterrupt

    fakes.install()
    verify.measure = measure


def nothing_runs() -> None:
    from placement.runtime.measurement.request import Failure

    def fail(self: Any, request: Any) -> Any:
        yield dict.fromkeys(range(len(request.candidates)), Failure("infer", "it broke"))

    fakes.install()
    fakes.FakeMeasurer.measure_chunks = fail  # type: ignore[method-assign]


def row(summary: dict[str, Any], method: str) -> dict[str, Any]:
    (found,) = [row for row in summary["rows"] if row["method"] == method]
    return found


def best_single_s(summary: dict[str, Any]) -> float:
    singles = [r["predicted_s"] for r in summary["rows"] if r["method"].startswith("single:")]
    return min(singles)


def test_interrupted_solvers_keep_their_best(tmp_path: Path) -> None:
    method = "search"
    flags = (*SOLVE, "--config.objective=makespan", f"--config.methods={method},heft")
    code, out, err = run(
        tmp_path, *flags, config="configs/solvers.py", broken=functools.partial(at_step, 20)
    )
    assert code == 0, err
    summary = check_summary(tmp_path)
    found = row(summary, method)
    assert (found["status"], summary["complete"]) == ("interrupted", False)
    assert found["evaluations"] > 64
    assert found["predicted_s"] < best_single_s(summary)
    assert json.loads((tmp_path / "placement.json").read_text())["method"] == method
    assert "heft" not in [row["method"] for row in summary["rows"]]
    assert f"interrupted in {method}; left out: heft" in out


def test_native_solvers_are_interrupted(tmp_path: Path) -> None:
    method = "milp_noncontiguous"
    flags = (*SOLVE, "--config.objective=max_load", f"--config.methods={method}")
    # On a graph for which no proof ends the solver earlier.
    flags += ("--config.graph=synthetic:family=layered,ops=120,seed=1", "--config.time_limit_s=600")
    code, _, err = run(tmp_path, *flags, config="configs/solvers.py", broken=in_native_code)
    assert code == 0, err
    found = row(check_summary(tmp_path), method)
    assert found["status"] == "interrupted"
    assert found["predicted_s"] <= best_single_s(check_summary(tmp_path))


def test_second_interrupts_keep_progress(tmp_path: Path) -> None:
    code, summary = lns_and_heft(tmp_path, twice)
    found = row(summary, "lns")
    assert (code, found["status"]) == (0, "interrupted")
    assert found["evaluations"] > 1000
    assert found["predicted_s"] < best_single_s(summary)


def test_faults_keep_progress(tmp_path: Path) -> None:
    code, summary = lns_and_heft(tmp_path, fault)
    found = row(summary, "lns")
    assert (code, found["status"]) == (1, "fault: ZeroDivisionError")
    assert found["predicted_s"] < best_single_s(summary)
    assert row(summary, "heft")["status"] == "finished"


def test_complete_runs_are_kept(tmp_path: Path) -> None:
    """Measured results stay; the interrupted ones are in a folder until the next complete run."""
    model = tmp_path / "branches.xml"
    ov.save_model(small.branches(size=16, length=2), model)
    flags = (f"--config.graph={model}", "--config.method=lns", "--config.objective=makespan")
    flags += ("--config.backend=concurrent", "--config.budget=640", "--config.measure_s=0.2")
    tmp_path = tmp_path / "run"
    assert run(tmp_path, *flags, broken=fakes.install)[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert row(check_summary(tmp_path), "lns")["measured_s"] is not None
    code, out, err = run(tmp_path, *flags, broken=while_measuring)
    assert code == 0, err
    assert "keeps the complete results of before" in out
    kept = ("summary.json", "placement.json", "config.json", "report.md", "report.html")
    assert {name: (tmp_path / name).read_bytes() for name in kept} == {n: before[n] for n in kept}
    separate = check_summary(tmp_path / "interrupted")
    assert row(separate, "lns")["measured_s"] is None
    assert (tmp_path / "interrupted" / "placement.json").exists()
    assert run(tmp_path, *flags, broken=fakes.install)[0] == 0
    assert not (tmp_path / "interrupted").exists()
    assert (tmp_path / "summary.json").read_bytes() != before["summary.json"]


def test_causes_are_counted(tmp_path: Path) -> None:
    model = tmp_path / "branches.xml"
    ov.save_model(small.branches(size=16, length=2), model)
    flags = (f"--config.graph={model}", "--config.method=topological", "--config.devices=host")
    code, _, err = run(tmp_path / "run", *flags, broken=nothing_runs)
    assert code == 3, err
    line = err.strip().splitlines()[-1]
    assert line.startswith("error: none of 5 placements ran: 5 x infer: it broke; ")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["best"], summary["complete"]) == (None, False)
    assert {row["status"] for row in summary["rows"]} == {"failed: infer: it broke"}
    assert not (tmp_path / "run" / "placement.json").exists()
    assert "No placement has a usable latency" in (tmp_path / "run" / "report.md").read_text()
