"""The researchers' command line: messages for mistakes, and whole runs on the real CPU plug-in."""

import json
import signal
import time
from pathlib import Path

import onnx
import pytest

from experiments import main
from placement.reporting import verdict
from tests.experiments.command import answer, check_details, check_summary, run, start

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
MISTAKES = {
    "--config.graph=nowhere.xml": "no model file 'nowhere.xml'",
    "--config.graph=resnet5": "did you mean 'resnet50'?",
    "--config.method=hsdagg:variant=paper": "did you mean 'hsdag'?",
    "--config.devices=roofline:cpu,gpu --config.evaluate=measure": "evaluate='simulate'",
    "--config.devices=roofline:cpu,gpu --config.method=hetero": "described",
    "--config.devices=roofline:cpu,gpu --task=profile": "devices='host'",
    "--config.objective=makespan --config.devices=host": "backend='concurrent'",
    f"--config.graph={'a' * 300}.onnx": "too long a name",
    "--config.costs=nowhere.json --config.evaluate=simulate": "nowhere.json",
    "--config.budget=many": "--config.budget=many: invalid literal for int()",
    "--workdri=runs": "did you mean 'workdir'?",
    "--task=plaice": "did you mean 'place'?",
    "--task=compare --config.seeds=0": "seeds=0",
    "--task=solve --config.methods=hsdag": "graph_cut",
    "--config.method=heft": "makespan",
    "--config.method=hsdag,random": "compare several",
    "--task=report": "no summary.json",
    "--config=configs/nowhere.py": "unknown configuration 'configs/nowhere.py'; valid: colocrl",
}


@pytest.mark.parametrize("flags", MISTAKES)
def test_mistakes_are_one_line(flags: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path / "run", *flags.split())
    assert (code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert MISTAKES[flags] in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("# A page\n\nIt's none.\n", "SyntaxError: "), ("x = 1\n", "KeyError: 'get_config'")],
)
def test_broken_configurations_are_named(text, wrong, tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    file.write_text(text)
    code, out, err = answer(f"--config={file}", f"--workdir={tmp_path / 'run'}")
    assert (code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith(f"error: {str(file)!r} is not a configuration: {wrong}")
    assert "quickstart" in line


def test_missing_flags_are_named(tmp_path: Path) -> None:
    code, _, err = answer(f"--workdir={tmp_path / 'run'}")
    assert code == 2
    assert err.startswith("error: --task=place needs --config, such as --config=quickstart")
    code, _, err = answer("--config=quickstart")
    assert (code, err) == (
        2,
        "error: --task=place needs --workdir, such as --workdir=runs/quickstart\n",
    )


def test_help_comes_before_mistakes() -> None:
    assert answer("--config=nowhere", "--help") == (0, main.help_text() + "\n", "")
    code, out, err = answer()
    assert (code, out) == (2, "")
    assert err.startswith("usage: python -m experiments.main")
    for text in ("\n  pretrain  ", "quickstart", "\n  130  ", "--config.budget: placements"):
        assert text in err


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

    report = (tmp_path / "report.md").read_text()
    (tmp_path / "report.md").unlink()
    code, _, err = answer("--task=report", f"--workdir={tmp_path}")
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
