"""The researchers' command line: messages for mistakes, and whole runs on the real CPU plug-in."""

import json
import sys
from pathlib import Path

import onnx
import pytest

from placement.reporting import verdict
from tests.experiments.command import answer, check_details, check_summary, run, start

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
MISTAKES = {
    "--config.graph=resnet5": "did you mean 'resnet50'?",
    "--config.method=hsdagg:num_samples=16": "did you mean 'hsdag'?",
    "--config.devices=roofline:cpu,gpu --config.evaluate=measure": "evaluate='simulate'",
    "--config.devices=roofline:cpu,gpu --config.method=hetero": "described",
    "--config.devices=roofline:cpu,gpu --task=profile": "devices='host'",
    "--config.objective=makespan --config.devices=host": "backend='concurrent'",
    "--config.costs=nowhere.json --config.evaluate=simulate": "nowhere.json",
    "--config.budget=many": "--config.budget=many: invalid literal for int()",
    "--workdri=runs": "did you mean 'workdir'?",
    "--task=plaice": "did you mean 'place'?",
    "--task=compare --config.seeds=0": "seeds=0",
    "--task=solve --config.methods=hsdag": "graph_cut",
    "--config.method=heft": "makespan",
    "--config.method=hsdag,random": "compare several",
    "--task=report": "no summary.json",
    "--task=advise --config.costs=profile.json": "leave out costs='profile.json'",
    "--task=compare --config.graphs=rnlm,synthetic:ops=9": "rnlm",
    "--config.devices=precisions --config.objective=makespan --config.backend=concurrent": (
        "backend='hetero' and objective='serial'"
    ),
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


def test_unusable_configurations_are_named(tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    file.write_text("It's none.\n")
    code, _, err = run(tmp_path / "run", config=str(file))
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith(f"error: {str(file)!r} is not a configuration: SyntaxError: ")
    assert "quickstart" in line
    code, _, err = answer(f"--workdir={tmp_path / 'run'}")
    assert code == 2
    assert err.startswith("error: --task=place needs --config, such as --config=quickstart")
    code, _, err = answer("--config=quickstart")
    assert code == 2
    assert err.startswith("error: --task=place needs --workdir, such as --workdir=runs/quickstart")


def test_help_comes_before_mistakes() -> None:
    code, out, err = answer("--config=nowhere", "--help")
    assert (code, err) == (0, "")
    assert answer() == (2, "", out)  # without flags
    for text in ("usage: ", "\n  pretrain  ", "quickstart", "\n  130  ", "--config.budget: "):
        assert text in out


def test_place_writes_the_run_directory(tmp_path: Path) -> None:
    flags = [f"--config.graph={LIGHT / 'light_squeezenet.onnx'}", "--config.devices=host"]
    flags += ["--config.budget=160", "--config.measure_s=0.2"]
    code, out, err = run(tmp_path, *flags)
    assert code == 0, err
    summary = check_summary(tmp_path)
    rows = {row["method"]: row for row in summary["rows"]}
    assert len([name for name in rows if name.startswith("single:")]) == 2
    assert {"hetero", "random", "hsdag"} <= set(rows)
    for row in rows.values():
        assert (row["measured_s"] is None) == row["status"].startswith("failed"), row
        if row["measured_s"]:
            assert 0 < row["measured_s"]["low"] <= row["measured_s"]["median"]
    placed = json.loads((tmp_path / "placement.json").read_text())
    decided = verdict.decide(summary["rows"])
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


def _print_ascii() -> None:
    sys.stdout.reconfigure(encoding="ascii")  # type: ignore[union-attr]


def test_outputs_may_be_narrow(tmp_path: Path) -> None:
    """Standard output lacks characters of a path, or is closed early, as `head` does."""
    flags = ("--config.graph=synthetic:ops=12", "--config.devices=roofline:cpu,gpu")
    flags += ("--config.method=random",)
    code, out, err = run(tmp_path / "größe", *flags, broken=_print_ascii)
    assert code == 0, err
    assert "gr\\xf6\\xdfe" in out
    process = start(tmp_path / "closed", *flags)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    check_summary(tmp_path / "closed")
