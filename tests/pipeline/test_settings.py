"""The settings, and the three front ends that are made from them."""

import dataclasses
import re

import pytest
from absl import flags
from absl.testing import flagsaver

import placement
from configs import common
from experiments import main
from placement import cli
from placement.errors import UserError
from placement.pipeline import place, tasks
from placement.pipeline.settings import Settings

CHANGES = {"graph": "m.onnx", "devices": "host", "constants": False, "time_limit_s": 5.0, "seed": 3}


def read_flags(*argv: str) -> Settings | None:
    with flagsaver.flagsaver():
        main.parse(["experiments.main", *argv])
        return main.read_settings()


def run_click(*argv: str, monkeypatch: pytest.MonkeyPatch) -> Settings | None:
    received = []
    monkeypatch.setattr(tasks, "run_command", lambda task, settings, *_: received.append(settings))
    monkeypatch.setattr("sys.argv", ["placement", *argv])
    cli.entry()
    return received[0]


def test_front_ends_share_settings(tmp_path, monkeypatch):
    expected = Settings(**CHANGES)
    words = [f"--config.{key}={value}" for key, value in CHANGES.items()]
    file = tmp_path / "plain.py"
    file.write_text("from configs.common import base as get_config")
    assert read_flags(f"--config={file}", *words) == expected
    assert read_flags(*words) == dataclasses.replace(expected, search_anyway=True)  # quickstart
    assert read_flags() is None

    words = ["--devices=host", "--no-constants", "--time-limit=5", "--seed", "3"]
    assert run_click("place", "m.onnx", *words, monkeypatch=monkeypatch) == expected

    monkeypatch.setattr(place, "run", lambda settings, *_: pytest.fail(repr(settings)))
    with pytest.raises(pytest.fail.Exception, match=re.escape(repr(expected))):
        placement.place(
            "m.onnx", devices=["host"], constants=False, time_limit_s=5, seed=3, workdir=tmp_path
        )


def test_typos_are_one_line(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        read_flags("--config.bugdet=3")
    with pytest.raises(SystemExit, match="2"):
        run_click("place", "x", "--bugdet=3", monkeypatch=monkeypatch)
    with pytest.raises(UserError) as caught:
        placement.place("x", bugdet=3, workdir=tmp_path)
    lines = [*capsys.readouterr().err.splitlines(), f"error: {caught.value}"]
    assert len(lines) == 3
    for line in lines:
        assert re.match(r"error: .*bugdet'.*[Dd]id you mean '.*budget'\?", line)


def test_every_setting_has_help():
    values = Settings.from_mapping({"methods": ["heft", "lns"], "measure_s": 1})
    assert repr(values) == "Settings(methods='heft,lns', measure_s=1.0)"
    assert common.base().to_dict() == Settings().to_dict()
    text = main.help_text()
    for field in dataclasses.fields(Settings):
        assert 0 < len(field.metadata["summary"]) <= 90
        assert f"config.{field.name}: " in text
        assert flags.FLAGS[f"config.{field.name}"].default == field.default
