"""The installed command, run as its users run it: in a process, from a folder of their own."""

import json
import os
import re
import shutil
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


def test_shells_complete_commands(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["placement"])
    monkeypatch.setenv("_PLACEMENT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", "placement place mod")
    with pytest.raises(SystemExit, match="0"):
        cli.entry()
    assert capsys.readouterr().out == "file,mod\n"


@pytest.mark.nightly
def test_wheel_is_complete(tmp_path):
    """Installs a wheel of the package next to the installed dependencies, and runs its command."""
    source, target = tmp_path / "source", tmp_path / "target"
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "placement", source / "placement", ignore=no_caches)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    files = {str(path.relative_to(source)) for path in source.rglob("placement/**/*.*")}
    pip = ["pip", "install", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run([sys.executable, "-m", *pip, f"--target={target}", source], check=True)
    installed = {str(path.relative_to(target)) for path in target.rglob("*.*")}
    assert files <= installed
    assert all(".dist-info" in name for name in installed - files)
    command = [target / "bin/placement", "place", "two_stream", "--devices=roofline:cpu,gpu"]
    command += ["--method=heft", "--evaluate=simulate"]
    environment = {**os.environ, "PYTHONPATH": str(target)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "runs/two_stream/report.html").is_file()
