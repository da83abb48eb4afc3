"""The installed command, run as its users run it: in a process, from a folder of their own."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from click.testing import CliRunner
from openvino import opset13 as ops

import placement
from placement import cli
from tests.runtime import small

ROOT = Path(placement.__file__).parents[1]
QUICK = ("--devices=host", "--method=heft", "--measure-time=0.2", "--time-limit=2")


def test_model_is_placed_and_deployed(tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()  # a package of the user's
    (tmp_path / "experiments/__init__.py").write_text("raise ImportError('not this one')")
    ov.serialize(small.convolutions(length=2), tmp_path / "chain.xml")

    def run(*arguments: str) -> str:
        words = [sys.executable, "-m", "placement.cli", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    run("place", "chain.xml", *QUICK)
    assert json.loads((tmp_path / "runs/chain/config.json").read_text())["method"] == "heft"
    assert str(Path("runs/chain/report.html")) in run("report", "runs/chain")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["deploy", "runs/chain"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "runs/chain/deploy").is_dir()


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """Runs a command that exits with 2, and returns its one line."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["placement", *arguments])
        with pytest.raises(SystemExit, match="2"):
            cli.entry()
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("place none.onnx", "no model file 'none.onnx'"),
        ("place synthetic:ops=9 --devices=host", "devices='roofline:cpu,gpu,gpu'"),
        ("report nowhere", "no summary.json in 'nowhere'; place the model"),
        ("deploy nowhere", "'nowhere/config.json' cannot be read"),
        ("methods lns", "lns has no hyper-parameters"),
        ("plcae x", "No such command 'plcae'. Did you mean 'place'?"),
        ("place x --budget=many", "'many' is not a valid integer (placement place --help"),
    ],
)
def test_mistakes_are_one_line(arguments, message, refusal):
    line = refusal(*arguments.split())
    assert line.startswith("error: ")
    assert message in line
    assert "--config" not in line


def test_proposed_shapes_file_works(refusal):
    source = ops.parameter([-1, 3], np.float32, name=" a;b's")
    model = ov.Model([ops.result(ops.relu(source))], [source])
    ov.save_model(model, "model.xml", compress_to_fp16=False)
    pattern = r"such as input_shapes='(\S+)' with (.*) in that file"
    file, text = re.search(pattern, refusal("devices", "model.xml")).groups()
    Path(file).write_text(text)
    result = CliRunner().invoke(cli.main, ["devices", "model.xml", f"--input-shapes={file}"])
    assert result.exit_code == 0


def test_help_and_lists_are_printed():
    for name, subcommand in cli.main.commands.items():
        result = CliRunner().invoke(cli.main, [name, "--help"], terminal_width=200)
        assert result.exit_code == 0
        assert all(parameter.opts[0] in result.output for parameter in subcommand.params[1:])
    assert placement.__version__ in CliRunner().invoke(cli.main, ["--version"]).output
    assert "search " in CliRunner().invoke(cli.main, ["methods"]).output
    assert "CPU " in CliRunner().invoke(cli.main, ["devices"]).output
    result = CliRunner().invoke(cli.main, ["methods", "hsdag"])
    shown = dict(line.split(maxsplit=1) for line in result.output.splitlines()[1:])
    assert shown["algorithm"] == "reinforce"
    assert shown["variant"] == "one of paper, released"


def test_setup_installs_the_command():
    """Reads setup.py, since the installed package may be older."""
    (entry,) = re.findall(r'"placement = (.*?)"', (ROOT / "setup.py").read_text("utf-8"))
    point = importlib.metadata.EntryPoint("placement", entry, "console_scripts")
    assert point.load() is cli.entry
