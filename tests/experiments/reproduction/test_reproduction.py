"""The commands of the pages' tables, run as `python -m experiments.reproduction` does."""

from pathlib import Path

import pytest

from experiments.reproduction import __main__ as reproduction

pytestmark = pytest.mark.slow


def test_a_command_runs_outside_of_the_projects_root_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduction, "FOLDER", tmp_path)
    assert reproduction._run_command("list", "--config=quickstart --task=list")
    assert reproduction._run_command("list", "--config=quickstart --task=list")
    assert "made before: list" in capsys.readouterr().out
    assert not reproduction._run_command("wrong", "--config=quickstart --task=lost")
