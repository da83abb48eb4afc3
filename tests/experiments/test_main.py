"""The command line: messages for users' mistakes, and whole runs on the real CPU plug-in."""

import json
import os
import signal
import time
from pathlib import Path

import onnx
import pytest

from placement.pipeline.console.compilation_cache import keep_compiled, limit_compiled
from placement.reporting import verdict
from tests.experiments import command
from tests.experiments.command import check_details, check_summary, run, start

ROOT = Path(__file__).parents[2]
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


MISTAKES = {
    "missing file": (["--config.graph=nowhere.xml"], ["nowhere.xml"]),
    "unknown graph": (["--config.graph=resnet5"], ["resnet5'", "did you mean 'resnet50'?"]),
    "unknown method": (["--config.method=hsdagg:variant=paper"], ["did you mean 'hsdag'?"]),
    "described devices cannot be measured": (
        ["--config.devices=roofline:cpu,gpu", "--config.evaluate=measure"],
        ["described", "evaluate='simulate'"],
    ),
    "hetero on described devices": (
        ["--config.devices=roofline:cpu,gpu", "--config.method=hetero"],
        ["hetero", "described"],
    ),
    "profile of described devices": (
        ["--config.devices=roofline:cpu,gpu", "--task=profile"],
        ["roofline:cpu,gpu", "devices='host'"],
    ),
    "unknown backend": (["--config.backend=parallel"], ["parallel", "hetero", "concurrent"]),
    "an objective that another backend measures": (
        ["--config.objective=makespan", "--config.devices=host"],
        ["makespan", "hetero", "objective='serial'", "backend='concurrent'"],
    ),
    "a name that is too long": ([f"--config.graph={'a' * 300}.onnx"], ["too long a name"]),
    "missing costs": (
        ["--config.costs=nowhere.json", "--config.evaluate=simulate"],
        ["nowhere.json", "profile.json"],
    ),
    "unknown key": (["--config.budgets=3"], ["budgets", "did you mean 'budget'?", "time_limit_s"]),
    "unknown task": (["--task=plaice"], ["plaice", "did you mean 'place'?", "compare"]),
    "unknown flag": (["--workdri=runs"], ["workdri", "did you mean 'workdir'?"]),
    "no seeds": (["--task=compare", "--config.seeds=0"], ["seeds=0"]),
    "a solver of another objective": (["--config.method=heft"], ["'heft'", "makespan"]),
    "no solver": (["--task=solve", "--config.methods=hsdag"], ["hsdag", "graph_cut"]),
    "a negative seed": (["--config.seed=-1"], ["seed=-1", "from 0 to 2,147,483,640"]),
    "several methods to place": (["--config.method=hsdag,random"], ["compare several"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(mistake: str, tmp_path: Path) -> None:
    flags, words = MISTAKES[mistake]
    workdir = tmp_path / "run"
    code, out, err = run(workdir, *flags)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in words), err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("# A page\n\nIt's none.\n", "SyntaxError: "),
        ("x = 1\n", "KeyError: 'get_config'"),
    ],
)
def test_broken_configurations_are_named(text, wrong, tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    file.write_text(text)
    code, out, err = command.answer(f"--config={file}", f"--workdir={tmp_path / 'run'}")
    assert (code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith(f"error: {str(file)!r} is not a configuration: {wrong}")
    assert "quickstart" in line


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--config=configs/nowhere.py"], ["configs/nowhere.py", "quickstart"]),
        ([], ["--task=place needs --config", "--config=quickstart", "hsdag"]),
        (["--task=report"], ["no summary.json", "place the model"]),
    ],
)
def test_missing_flags_are_one_line(flags, words, tmp_path: Path) -> None:
    code, out, err = command.answer(*flags, f"--workdir={tmp_path / 'run'}")
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in words), err


def test_place_writes_the_run_directory(tmp_path: Path) -> None:
    flags = [f"--config.graph={LIGHT / 'light_squeezenet.onnx'}", "--config.devices=host"]
    flags += ["--config.budget=160", "--config.measure_s=0.2"]
    code, out, err = run(tmp_path, *flags)
    assert code == 0, err
    summary = check_summary(tmp_path)
    rows = {row["method"]: row for row in summary["rows"]}
    assert len([name for name in rows if name.startswith("single:")]) == 2
    assert {"hetero", "random", "hsdag"} <= set(rows)
    singles = [row["predicted_s"] for name, row in rows.items() if name.startswith("single:")]
    single_s = [value_s for value_s in singles if value_s is not None]
    # The search's own best: its row has the one of its best few that measures fastest.
    metrics = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(metrics[-1])["best_s"] <= min(single_s)
    for row in rows.values():
        assert (row["measured_s"] is None) == row["status"].startswith("failed"), row
        if row["measured_s"]:
            assert 0 < row["measured_s"]["low"] <= row["measured_s"]["median"]
    placed = json.loads((tmp_path / "placement.json").read_text())
    decided = verdict.decide(summary["rows"])
    assert decided.placement is not None
    assert decided.winner is not None
    assert (placed["method"], summary["best"]) == (decided.placement.method, decided.winner.method)
    assert verdict.sentence(decided).replace("`", "") in out
    assert len(placed["placement"]) == summary["graph"]["num_ops"]
    check_details(tmp_path)
    for name in ("config.json", "environment.json", "metrics.jsonl", "report.md", "report.html"):
        assert (tmp_path / name).stat().st_size > 0
    assert "hsdag" in out

    report = (tmp_path / "report.md").read_text()
    (tmp_path / "report.md").unlink()
    code, _, err = command.answer("--task=report", f"--workdir={tmp_path}")
    assert code == 0, err
    assert (tmp_path / "report.md").read_text() == report


SMALL = (
    "--config.graph=synthetic:family=layered,ops=12,seed=1",
    *("--config.devices=roofline:cpu,gpu", "--config.method=random"),
)


def test_closed_output_is_no_failure(tmp_path: Path) -> None:
    process = start(tmp_path, *SMALL)
    assert process.stdout is not None
    process.stdout.close()  # as `head` does
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    check_summary(tmp_path)


def test_encodings_may_lack_characters(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = start(tmp_path / "größe", *SMALL)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "gr\\xf6\\xdfe" in out
    check_summary(tmp_path / "größe")


WORKLOAD = {
    "maxFPGAs": 1,
    "maxCPUs": 1,
    "maxSizePerFPGA": 9,
    "nodes": [{"id": i, "cpuLatency": 0, "fpgaLatency": 0} for i in range(3)],
    "edges": [],
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(WORKLOAD | {"maxFPGAs": 10**7}), "has 10000001 devices"),
        (json.dumps(WORKLOAD | {"maxCPUs": 10**9}), "pass at most 1024 in all"),
    ],
)
def test_large_workloads_are_refused(text, message, tmp_path: Path) -> None:
    path = tmp_path / "much.json"
    path.write_text(text)
    code, _, err = run(tmp_path / "run", f"--config.graph={path}", "--config.objective=max_load")
    assert code == 2, err
    (line,) = err.splitlines()
    assert "much" in line
    assert message in line


@pytest.mark.parametrize("objective", ["serial", "subgraph"])
def test_workloads_may_cost_nothing(objective, tmp_path: Path) -> None:
    path = tmp_path / "free.json"
    path.write_text(json.dumps(WORKLOAD))
    flags = (f"--config.graph={path}", f"--config.objective={objective}", "--config.method=random")
    code, _, err = run(tmp_path / "run", *flags)
    assert code == 0, err
    assert {row["predicted_s"] for row in check_summary(tmp_path / "run")["rows"]} == {0.0}


def test_interrupted_commands_continue(tmp_path: Path) -> None:
    method = "hsdag:variant=paper,hidden_size=4,episode_steps=1"
    flags = [*SMALL, f"--config.method={method}", "--config.time_limit_s=600"]
    process = start(tmp_path, *flags, "--config.budget=9000000")
    deadline = time.monotonic() + 600
    while not (tmp_path / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    (interrupted,) = [r for r in check_summary(tmp_path)["rows"] if r["method"] == method]
    assert interrupted["status"] == "interrupted"
    assert 2 < interrupted["evaluations"] < 9_000_000

    spent = interrupted["evaluations"]
    code, _, err = run(tmp_path, *flags, f"--config.budget={spent + 640}")
    assert code == 0, err
    (resumed,) = [r for r in check_summary(tmp_path)["rows"] if r["method"] == method]
    assert (resumed["status"], resumed["evaluations"]) == ("finished", spent + 640)
    assert resumed["predicted_s"] <= interrupted["predicted_s"]
    logged = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in logged] == list(range(1, len(logged) + 1))


def test_compiled_functions_are_cached(monkeypatch):
    cache, seconds = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    for name in (cache, seconds):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    keep_compiled()
    assert os.environ[cache] == "/some/cache/placement"
    assert float(os.environ[seconds]) < 1
    monkeypatch.setenv(cache, "/elsewhere")
    keep_compiled()
    assert os.environ[cache] == "/elsewhere"


def test_compiled_functions_are_dropped():
    import jax

    double = jax.jit(lambda x: 2 * x)
    double(1.0)
    limit_compiled(max_mappings=10**6)
    assert double._cache_size() == 1
    limit_compiled(max_mappings=0)
    assert double._cache_size() == 0
