"""Tasks with `measure_on=ray`: the same tables as without, and one line without a cluster."""

import contextlib
import dataclasses
import functools
import json
import os
import socket
import sys
from pathlib import Path

import openvino as ov
import pytest

from placement.errors import UserError
from placement.pipeline import compare, deploy, place
from placement.pipeline import target as target_lib
from placement.pipeline.console import progress
from placement.pipeline.results import bounds
from placement.pipeline.settings import Settings
from tests import clusters
from tests.experiments import command
from tests.runtime import small


@pytest.fixture(scope="module")
def running():
    with clusters.running("a", "b") as (_, nodes):
        yield nodes


@pytest.fixture
def chain(tmp_path) -> Settings:
    """Returns settings for a small model on host devices."""
    ov.serialize(small.convolutions(length=2), tmp_path / "chain.xml")
    return Settings(
        graph=str(tmp_path / "chain.xml"),
        devices="host",
        method="random",
        budget=20,
        measure_s=0.2,
        measure_on="ray",
    )


def rows(summary: dict) -> list[dict]:
    """Drops all numbers that depend on a clock."""
    return [
        {k: v for k, v in row.items() if k not in ("search_s", "compile_s")}
        for row in summary["rows"]
    ]


@contextlib.contextmanager
def closed_port():
    """Returns a port that nothing listens at and no other test gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def _set_address(address: str) -> None:
    os.environ["RAY_ADDRESS"] = address


def test_missing_cluster_is_one_line(tmp_path):
    with closed_port() as port:
        code, out, err = command.run(
            tmp_path,
            *("--config.measure_on=ray", "--config.devices=host"),
            "--config.graph=resnet:depth=18,width=10,size=32",
            broken=functools.partial(_set_address, f"127.0.0.1:{port}"),
        )
    assert code == 2
    assert out == ""
    (line,) = err.strip().splitlines()
    assert line.startswith(f"error: no Ray cluster runs at RAY_ADDRESS=127.0.0.1:{port}; ")
    assert "ray start --head" in line
    assert not list(tmp_path.iterdir())


def test_cells_on_hosts_are_equal(running, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(compare.report, "write_comparison", lambda *_: None)  # for speed
    settings = Settings(
        graph="synthetic:family=layered,ops=12,seed=1",
        devices="roofline:cpu,gpu",
        methods="random",
        budget=64,
        seeds=2,
    )
    here = compare.run(settings, tmp_path / "here")
    capfd.readouterr()
    there = compare.run(dataclasses.replace(settings, measure_on="ray"), tmp_path / "there")
    out, err = capfd.readouterr()
    assert repr(rows(there)) == repr(rows(here))  # NaN included
    assert {"a", "b"} == set(hosts_record(tmp_path / "there")["used"])
    assert bounds.read(tmp_path / "there" / "bounds.json") == bounds.read(
        tmp_path / "here" / "bounds.json"
    )
    assert err == ""
    assert out.splitlines()[:2] == ["hosts: a, b", "cells: 0 of 2 finished before"]
    assert "cell 2 of 2 finished" in out
    # Finished there is finished here.
    files = {path: path.read_bytes() for path in (tmp_path / "there" / "cells").rglob("*.json")}
    again = compare.run(settings, tmp_path / "there")
    assert repr(again["rows"]) == repr(there["rows"])
    assert {path: path.read_bytes() for path in files} == files


def hosts_record(workdir: Path) -> dict:
    return json.loads((workdir / "environment.json").read_text())["hosts"]


def test_hosts_profile_and_measure(running, chain, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # for speed
    summary = place.run(chain, tmp_path / "run", progress.Display(progress.DEBUG))
    out, err = capfd.readouterr()
    assert all(row["measured_s"] for row in summary["rows"])
    assert "hosts: a, b\n" in out
    assert "requests answered by hosts: {'a': " in out
    assert err == ""
    assert hosts_record(tmp_path / "run")["used"] == ["a", "b"]
    assert hosts_record(tmp_path / "run")["hardware"] == target_lib.describe_host()
    # The profile is of this hardware too: here nothing is profiled again.
    about = target_lib.find_target(dataclasses.replace(chain, measure_on="here"))
    before = (tmp_path / "run" / "profile.json").read_bytes()
    with target_lib.open_target(about, chain, tmp_path / "run", progress.DEFAULT_DISPLAY):
        pass
    assert (tmp_path / "run" / "profile.json").read_bytes() == before
    # A profile of other hardware, whatever its labels, is refused.
    other = json.loads(before) | {"key": "of another machine"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    chain = dataclasses.replace(chain, costs=str(tmp_path / "other.json"))
    with pytest.raises(UserError, match=r"other\.json' are not of this model on the hosts'"):
        place.run(chain, tmp_path / "refused")


def test_deploying_refuses_hosts(chain, tmp_path):
    with pytest.raises(UserError, match="deploy measures on this machine"):
        deploy.run(chain, tmp_path)


def test_better_bounds_are_kept(tmp_path):
    path = tmp_path / "bounds.json"
    bounds.merge(path, {"one": [1.0, 4.0, 4.0]})
    bounds.merge(path, {"one": [2.0, 3.0, 5.0], "two": [5.0, 5.0, 5.0]})
    assert bounds.read(path) == {"one": [2.0, 4.0, 5.0], "two": [5.0, 5.0, 5.0]}
