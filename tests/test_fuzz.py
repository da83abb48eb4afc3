"""Inputs that are nearly right, drawn by seed: a command succeeds or refuses them in one line."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openvino as ov
import pytest

from placement.pipeline.settings import Settings
from tests.experiments.command import answer
from tests.pipeline import test_workloads
from tests.runtime import small

NUMBERS = (0, -1, 1, 2**31, -(2**63), 10**30, 0.5, 1e308, -1e-308, float("nan"), float("inf"))
TEXTS = ("", " ", "\x00", "\x1b[31m", "[red]x[/red]", "é", "\ud800", "a|b\nc", "../x", "9" * 400)
OTHERS = (None, True, [], {}, [[]], {"a": {}}, [None])
VALUES = (
    *("hsdag:num_samples=0", "lns,heft", "all", "ray", "synthetic:ops=1", "synthetic:ops=-4"),
    *("nmt:layers=0", "roofline:", "roofline:cpu", "roofline:cpu,warp", "host:f64", "CPU,CPU"),
    *("makespan", "max_load", "concurrent", "simulate", "measure", "/dev/null", "/", "."),
)
QUICK = ("--config=solvers", "--config.budget=64", "--config.time_limit_s=2", "--task=solve")
FLAGS = (
    *(*QUICK, "--config.devices=roofline:cpu,gpu", "--config.methods=topological"),
    *("--config.method=topological", "--config.measure_s=.1"),
    "--config.graph=synthetic:family=layered,ops=6",
)
PLACE = (
    *("--config=hsdag", "--config.evaluate=simulate", "--config.devices=roofline:cpu,gpu"),
    *("--config.method=placeto:hidden_size=2,rounds=1", "--config.budget=128"),
    "--config.graph=synthetic:family=layered,ops=12,seed=1",
)


def draw_value(rng: random.Random) -> Any:
    """Anything that JSON can hold, and Python's additions to it."""
    return rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(OTHERS)))


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Cuts off, replaces, repeats or leaves out some bytes."""
    start = rng.randrange(len(data) or 1)
    end = min(len(data), start + rng.choice((1, 4, 64, 1024)))
    middle = rng.choice((b"", rng.randbytes(end - start), b"\x00" * (end - start), data[:end]))
    return rng.choice((data[:start] + middle + data[end:], data[:start], b""))


def change_json(rng: random.Random, text: str) -> bytes:
    """Changes up to three parts of JSON data, or its bytes."""
    if rng.random() < 0.15:
        return change_bytes(rng, text.encode())
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice([*list_parts(data)] or [([data], 0)])
        kind = rng.randrange(3)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder[key], int | float):
            holder[key] *= rng.choice((-1, 0, 0.5, 2, 1e9))
        else:
            holder[key] = draw_value(rng)
    return json.dumps(data).encode("utf-8", "surrogatepass")


def list_parts(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every holder and key of nested lists and objects."""
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield data, key
            yield from list_parts(data[key])


def change_workload(rng: random.Random, folder: Path, finished: Path) -> list[str]:
    text = json.dumps(rng.choice(list(test_workloads.WORKLOADS.values())))
    (folder / "workload.json").write_bytes(change_json(rng, text))
    objective = rng.choice(("serial", "makespan", "max_load", "subgraph"))
    flags = [f"--config.objective={objective}", "--config.methods=topological"]
    return [*QUICK, f"--config.graph={folder / 'workload.json'}", *flags]


def change_model(rng: random.Random, folder: Path, finished: Path) -> list[str]:
    path = folder / "model.xml"
    ov.save_model(rng.choice((small.branches, small.diamond, small.counter))(), path)
    changed = rng.choice((path, path, path, path.with_suffix(".bin")))
    changed.write_bytes(change_bytes(rng, changed.read_bytes()))
    return [*FLAGS, f"--config.graph={path}"]


def change_flags(rng: random.Random, folder: Path, finished: Path) -> list[str]:
    task = rng.choice(("solve", "place", "compare", "report", "deploy", "pretrain", "sing"))
    key = rng.choice((*Settings().to_dict(), "no_such_key"))
    text = str(rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(VALUES))))
    text = text.replace("\x00", "").encode("utf-8", "replace").decode()  # what a shell can pass
    return [*FLAGS, "--config.evaluate=simulate", f"--task={task}", f"--config.{key}={text}"]


def change_run(rng: random.Random, folder: Path, finished: Path) -> list[str]:
    shutil.copytree(finished, folder / "run")
    path = rng.choice(sorted(p for p in (folder / "run").rglob("*") if p.is_file()))
    data = path.read_bytes()
    if rng.random() < 0.1:
        path.unlink()
        path.mkdir()
    elif path.suffix == ".json":
        path.write_bytes(change_json(rng, data.decode()))
    else:
        path.write_bytes(change_bytes(rng, data))
    return [*PLACE, f"--task={rng.choice(('place', 'report', 'deploy'))}"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("fuzz") / "finished"
    code, out, err = answer(f"--workdir={workdir}", *PLACE)
    assert code == 0, (out, err)
    return workdir


@pytest.mark.parametrize("change", [change_workload, change_model, change_flags, change_run])
def test_changed_inputs_are_answered(change, finished, tmp_path):
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        flags = change(random.Random(seed), folder, finished)
        code, out, err = answer(f"--workdir={folder / 'run'}", *flags, limit_s=60.0)
        context = seed, flags, err
        assert code in (0, 2, 3), context
        assert "Traceback" not in out + err, context
        if code:
            assert err.strip().splitlines()[-1].startswith("error: "), context
            assert sum(line.startswith("error: ") for line in err.splitlines()) == 1, context
        elif "--task=report" not in flags:
            for path in (folder / "run").glob("*.json"):
                json.loads(path.read_text())
