"""The command line's help, and the list of `--task=list`."""

import importlib.util

import pytest

from configs import common
from experiments import main, usage
from placement import simulators, zoo
from placement.costs import roofline
from placement.pipeline import list, loading, method_runs
from placement.pipeline.console import faults
from placement.pipeline.settings import SUMMARIES, Settings
from placement.pipeline.target import find_target
from placement.runtime import scotch
from placement.zoo import synthetic
from tests.experiments.command import answer


@pytest.fixture(scope="module")
def sections() -> dict[str, dict[str, str]]:
    return list.sections()


@pytest.mark.parametrize("flag", ["--help", "--helpfull"])
def test_help_comes_before_mistakes(flag, tmp_path):
    code, out, err = answer("--config=nowhere", flag)
    assert (code, err) == (0, "")
    assert out.startswith("usage: python -m experiments.main")
    assert "exit codes:" in out


def test_help_fits_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = usage.full_help(main.TASKS, faults.EXIT_CODES)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if "  " in line.strip()}
    assert shown.keys() >= set(main.TASKS)
    defaults = {f"{name}={value}" for name, value in Settings().to_dict().items()}
    assert len(defaults & shown.keys()) == 10
    assert SUMMARIES["budget"].startswith(shown["budget=4000000"])
    assert {"0", "2", "3", "130"} <= shown.keys()
    assert text.count("\n  python -m experiments.main --config=") == 2


def test_no_arguments_print_help(tmp_path):
    code, out, err = answer()
    assert (code, out) == (2, "")
    assert err.startswith("usage: ")
    assert "--help" in err.splitlines()[-1]


def test_every_key_has_a_line():
    assert {*common.base()} == SUMMARIES.keys()
    for summary in SUMMARIES.values():
        assert 0 < len(summary) <= 90
        assert "\n" not in summary


def test_list_describes_everything(sections):
    expected = {
        *zoo.names(),
        *(f"synthetic:family={name}" for name in synthetic.summaries()),
        *method_runs.names(),
        *simulators.OBJECTIVES,
        *loading.BACKENDS,
        *roofline.SPECS,
        *("auto", "host", "CPU"),
    }
    listed = {name.partition(",")[0] for texts in sections.values() for name in texts}
    assert listed - {"precisions"} == expected  # which needs bf16
    for texts in sections.values():
        for name, text in texts.items():
            assert len(text) > 10, name
            assert "\n" not in text


def test_place_uses_listed_auto(sections):
    labels = find_target(Settings(graph="resnet:depth=18")).labels
    assert sections["devices here (devices=)"]["auto"] == "; ".join(labels)


def test_list_names_missing_packages(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(scotch, "_find_program", lambda: None)
    listed = list.sections()
    assert "pip install -e '.[solvers]'" in listed["partitioners"]["metis"]
    assert listed["partitioners"]["scotch"].endswith("apt-get install scotch)")
    (solvers,) = [texts for texts in listed.values() if "cpsat" in texts]
    assert "ortools is not installed" in solvers["cpsat"]
    assert solvers["heft"].endswith("[makespan]")
    assert solvers["annealing"].endswith("[any]")


def test_list_needs_no_flags(sections, tmp_path):
    code, out, err = answer("--task=list")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == sum(1 + len(texts) for texts in sections.values())
    assert "  resnet50 " in out
