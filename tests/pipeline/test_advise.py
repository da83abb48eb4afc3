"""`--task=advise`, and the advice that `--task=place` prints before it searches."""

import json
from pathlib import Path

import openvino as ov
import pytest

from placement import simulators
from placement.pipeline.results.advice import Advice
from tests.experiments.command import run
from tests.runtime import small

_DESCRIBED = (
    "--config.graph=synthetic:family=layered,ops=12,seed=1",
    "--config.devices=roofline:cpu,gpu,gpu",
)


def _advice(bound_s: float, **changes: object) -> Advice:
    record = {"objective": "makespan", "backend": "", "fastest": "single:gpu", "fastest_s": 0.01}
    record |= {"measured": False, "optimal": False, "chain": 0.5}
    return Advice(**record | {"bound_s": bound_s} | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (_advice(0.0099), "Stop here: no placement can be clearly faster than gpu alone."),
        (_advice(0.006), "A search may gain up to 40%."),
        (_advice(float("-inf")), "Only a search can tell"),
        (_advice(0.006, measured=True, chain=float("nan")), "takes 10 ms (measured)."),
    ],
)
def test_advice_states_best_possible_time(given, message):
    assert message in "\n".join(given.lines())


def test_every_objective_is_advised(tmp_path):
    code, out, err = run(tmp_path, "--task=advise", *_DESCRIBED)
    assert code == 0, err
    rows = json.loads((tmp_path / "advice.json").read_text())["rows"]
    assert [row["objective"] for row in rows] == list(simulators.OBJECTIVES)
    serial = next(row for row in rows if row["objective"] == "serial")
    assert serial["fastest"].startswith("single:gpu")
    assert serial["ratio"] <= 1 + 1e-6
    assert "objective='serial': " in out
    assert not any(row["measured"] for row in rows)


@pytest.mark.slow
def test_present_devices_are_measured(tmp_path: Path):
    file = tmp_path / "diamond.xml"
    ov.save_model(small.diamond(), file, compress_to_fp16=False)
    flags = ("--task=advise", f"--config.graph={file}", "--config.devices=host")
    code, out, err = run(tmp_path / "run", *flags, "--config.measure_s=0.1")
    assert code == 0, err
    rows = json.loads((tmp_path / "run" / "advice.json").read_text())["rows"]
    assert [(row["backend"], row["objective"]) for row in rows] == [
        ("hetero", "serial"),
        ("concurrent", "makespan"),
        ("concurrent", "max_load"),
    ]
    assert all(row["measured"] == row["fastest"].startswith("CPU [") for row in rows)
    assert "objective='max_load', backend='concurrent': " in out


def test_hopeless_searches_do_not_run(tmp_path):
    # A chain of equal operations has nothing to share out.
    flags = ("--config.graph=synthetic:family=chain,ops=12", *_DESCRIBED[1:])
    flags += ("--config.objective=makespan", "--config.method=heft")
    code, out, err = run(tmp_path / "stopped", *flags, "--config.search_anyway=False")
    assert code == 0, err
    assert "Stop here: no placement can be clearly faster than gpu" in out + err
    assert "heft is not run. To run it anyway, set search_anyway=True" in out + err
    summary = json.loads((tmp_path / "stopped" / "summary.json").read_text())
    assert "heft" not in [row["method"] for row in summary["rows"]]
    assert summary["best"].startswith("single:gpu")
    assert "In simulation, use gpu" in out
    code, out, err = run(tmp_path / "searched", *flags, "--config.search_anyway=True")
    assert code == 0, err
    assert "heft runs anyway, because search_anyway is set." in out + err
    assert "searching heft" in out + err
    assert json.loads((tmp_path / "searched/advice.json").read_text())["objective"] == "makespan"
