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
from placement.pipeline.settings import SUMMARIES, Settings
from tests.runtime import small
from tests.runtime.measurement.worker import test_loaded

ROOT = Path(placement.__file__).parents[1]
_QUICK = ("--devices=host", "--method=heft", "--measure-time=0.2", "--time-limit=2")


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
    code, _, err = command("place", "chain.xml", *_QUICK, folder=tmp_path)
    assert (code, err) == (0, ""), err
    run = tmp_path / "runs/chain"
    assert json.loads((run / "config.json").read_text())["method"] == "heft"
    code, again, err = command("report", "runs/chain", folder=tmp_path)
    assert (code, err) == (0, ""), err
    assert str(Path("runs/chain/report.html")) in again
    code, _, err = command("deploy", "runs/chain", folder=tmp_path)
    assert (code, err) == (0, ""), err
    assert (run / "deploy").is_dir()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("place", "none.onnx"), ["no model file 'none.onnx'"]),
        (("place", "synthetic:ops=9", "--devices=host"), ["devices='roofline:cpu,gpu,gpu'"]),
        (("report", "nowhere"), ["no summary.json in 'nowhere'", "place the model"]),
        (("deploy", "nowhere"), ["no config.json in 'nowhere'"]),
        (("methods", "lns"), ["lns has no hyper-parameters", "hsdag"]),
        (("methods", "lsn"), ["unknown method 'lsn'", "lns"]),
        (("plcae", "x"), ["No such command 'plcae'", "place"]),
        (("place", "x", "--devicess=host"), ["--devicess", "--devices"]),
        (("place", "x", "--budget=many"), ["--budget", "many"]),
    ],
)
def test_mistakes_are_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert "--config" not in result.output
    assert "--task" not in result.output


@pytest.mark.parametrize("name", ["a;b", " a ", "it's"])
def test_proposed_shapes_file_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = ops.parameter([-1, 3], np.float32, name=name)
    model = ov.Model([ops.result(ops.relu(source))], [source])
    ov.save_model(model, "model.xml", compress_to_fp16=False)
    refused = CliRunner().invoke(cli.main, ["devices", "model.xml"])
    assert refused.exit_code == 2
    pattern = r"such as input_shapes='(\S+)' with (.*) in that file"
    file, text = re.search(pattern, refused.stderr).groups()
    Path(file).write_text(text)
    flags = [f"--input-shapes={file}"]
    assert CliRunner().invoke(cli.main, ["devices", "model.xml", *flags]).exit_code == 0


@pytest.mark.parametrize("task", ["place", "advise"])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (test_loaded.noisy(0), "outputs 'noisy', because of RandomUniform 'noise'"),
        (test_loaded.unrolled(), "the plain CPU cannot compile the model: Loop detected"),
    ],
)
def test_unusable_models_exit_with_2(task, model, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ov.save_model(model, "model.xml", compress_to_fp16=False)
    result = CliRunner().invoke(cli.main, [task, "model.xml", "--devices=host"])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize("name", sorted(cli.main.commands))
def test_help_lists_all_options(name):
    result = CliRunner().invoke(cli.main, [name, "--help"], terminal_width=200)
    assert result.exit_code == 0
    defaults = Settings().to_dict()
    for parameter in cli.main.commands[name].params:
        if parameter.name in SUMMARIES and parameter.name != "graphs":
            assert parameter.default == defaults[parameter.name]
            assert SUMMARIES[parameter.name] in result.output
            assert parameter.opts[0] in result.output


def test_hyper_parameters_are_listed():
    result = CliRunner().invoke(cli.main, ["methods", "hsdag:variant=paper"])
    assert result.exit_code == 0
    shown = dict(line.split(maxsplit=1) for line in result.output.splitlines()[1:])
    assert shown["algorithm"] == "reinforce"
    assert shown["variant"] == "one of tuned, untrained, paper, released"


def test_methods_and_devices_are_listed():
    assert "search " in CliRunner().invoke(cli.main, ["methods"]).output
    assert "CPU " in CliRunner().invoke(cli.main, ["devices"]).output


def test_setup_installs_the_command():
    """Reads setup.py, since the installed package may be older."""
    (entry,) = re.findall(r'"placement = (.*?)"', (ROOT / "setup.py").read_text("utf-8"))
    point = importlib.metadata.EntryPoint("placement", entry, "console_scripts")
    assert point.load() is cli.entry


def test_version_is_the_packages():
    assert placement.__version__ in CliRunner().invoke(cli.main, ["--version"]).output
