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
from tests.runtime.measurement.worker import test_loaded

ROOT = Path(placement.__file__).parents[1]
QUICK = ("--devices=host", "--method=heft", "--measure-time=0.2", "--time-limit=2")


def command(*arguments: str, folder: Path) -> tuple[int, str, str]:
    """Runs `placement` in a folder that has a package called `experiments`."""
    (folder / "experiments").mkdir(exist_ok=True)
    (folder / "experiments/__init__.py").write_text("raise ImportError('not this one')")
    done = subprocess.run(
        [sys.executable, "-m", "placement.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_model_is_placed_and_deployed(tmp_path):
    ov.serialize(small.convolutions(length=2), tmp_path / "chain.xml")
    code, _, err = command("place", "chain.xml", *QUICK, folder=tmp_path)
    assert (code, err) == (0, ""), err
    run = tmp_path / "runs/chain"
    assert json.loads((run / "config.json").read_text())["method"] == "heft"
    code, again, err = command("report", "runs/chain", folder=tmp_path)
    assert (code, err) == (0, ""), err
    assert str(Path("runs/chain/report.html")) in again
    code, _, err = command("deploy", "runs/chain", folder=tmp_path)
    assert (code, err) == (0, ""), err
    assert (run / "deploy").is_dir()


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
        ("deploy nowhere", "no config.json in 'nowhere'"),
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


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (test_loaded.noisy(0), "outputs 'noisy', because of RandomUniform 'noise'"),
        (test_loaded.unrolled(), "the plain CPU cannot compile the model: Loop detected"),
    ],
)
def test_unusable_models_are_refused(model, message, refusal):
    ov.save_model(model, "model.xml", compress_to_fp16=False)
    assert message in refusal("place", "model.xml", "--devices=host")


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
    assert "search " in CliRunner().invoke(cli.main, ["methods"]).output
    assert "CPU " in CliRunner().invoke(cli.main, ["devices"]).output
    result = CliRunner().invoke(cli.main, ["methods", "hsdag:variant=paper"])
    shown = dict(line.split(maxsplit=1) for line in result.output.splitlines()[1:])
    assert shown["algorithm"] == "reinforce"
    assert shown["variant"] == "one of tuned, untrained, paper, released"


def test_setup_installs_the_command():
    """Reads setup.py, since the installed package may be older."""
    (entry,) = re.findall(r'"placement = (.*?)"', (ROOT / "setup.py").read_text("utf-8"))
    point = importlib.metadata.EntryPoint("placement", entry, "console_scripts")
    assert point.load() is cli.entry
    assert placement.__version__ in CliRunner().invoke(cli.main, ["--version"]).output
