"""Runs the command line on inputs that are nearly right, and on commands that are broken off.

    make fuzz
    python -m tests.robustness.fuzz 5000          so many inputs, from seed 0 on
    python -m tests.robustness.fuzz workload 17   one of them again, with what it printed

An input is made from its kind and seed, and can be made again from them. A command may succeed,
refuse in one line (2), or lack something of the machine (3). It may not end in a traceback, a fault
(1), a signal that nobody sent, or not at all; and after one that was broken off, or whose run
directory was damaged, the same command goes on to the end or refuses by name.
"""

import collections
import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import openvino as ov
from onnx import helper, numpy_helper

from placement.pipeline.settings import SUMMARIES
from tests.experiments.command import answer
from tests.pipeline import test_workloads
from tests.robustness import mutators
from tests.runtime import small

LIMIT_S = 60.0  # of a command
AT_ONCE = 2
_MAY = frozenset({0, 2, 3})
_SOLVERS = {
    "max_load": ("topological", "pipedream", "linearised_dp"),
    "subgraph": ("topological", "greedy", "dp_split"),
    "makespan": ("topological", "heft", "m_topo"),
    "serial": ("round_robin", "random", "graph_cut"),
}
_QUICK = ("--config=solvers", "--config.budget=64", "--config.time_limit_s=2")
_MODEL = (*_QUICK, "--task=solve", "--config.devices=roofline:cpu,gpu")
# What makes the run directory that others are damaged copies of, and is run in them again.
_PLACE = ("--config=hsdag", "--config.evaluate=simulate", "--config.devices=roofline:cpu,gpu")
_PLACE += ("--config.method=placeto:hidden_size=2,rounds=1", "--config.budget=128")
_PLACE += ("--config.graph=synthetic:family=layered,ops=12,seed=1",)


class Command(NamedTuple):
    """What is run in the folder of an input, and how it may end."""

    flags: tuple[str, ...]
    may: frozenset[int] = _MAY  # exit codes; -9 after a kill
    broken: Callable[[], None] | None = None


class Outcome(NamedTuple):
    """What became of an input."""

    kind: str
    seed: int
    code: int  # of its last command
    complaint: str  # '' if nothing is wrong


# (random, the input's folder, a finished run directory) -> its commands. The run directory of the
# commands is `run` in the folder.
Kind = Callable[[random.Random, Path, Path], list[Command]]


def workload(rng: random.Random, folder: Path, finished: Path) -> list[Command]:
    """A workload file with a few things changed."""
    text = json.dumps(rng.choice(list(test_workloads.WORKLOADS.values())))
    path = folder / "workload.json"
    path.write_bytes(mutators.of_json(rng, text).encode("utf-8", "surrogatepass"))
    objective = rng.choice(list(_SOLVERS))
    parts = rng.choice(("", ":parts=2", ":parts=0")) if objective == "subgraph" else ""
    graph = f"--config.graph={path}{parts}"
    how = ("--task=solve", f"--config.objective={objective}", "--config.devices=auto")
    return [Command((*_QUICK, *how, graph, f"--config.methods={rng.choice(_SOLVERS[objective])}"))]


def model(rng: random.Random, folder: Path, finished: Path) -> list[Command]:
    """An IR or an ONNX model with a few things changed."""
    if rng.random() < 0.5:
        path = folder / "model.onnx"
        path.write_bytes(mutators.of_onnx(rng, _onnx()))
    else:
        path = folder / "model.xml"
        ov.save_model(rng.choice((small.branches, small.diamond, small.counter))(), path)
        beside = path.with_suffix(".bin")
        if rng.random() < 0.2:
            beside.write_bytes(mutators.of_bytes(rng, beside.read_bytes()))
        else:
            changed = mutators.of_xml(rng, path.read_text())
            path.write_bytes(changed.encode("utf-8", "surrogatepass"))
    method = rng.choice(("topological", "random"))
    return [Command((*_MODEL, f"--config.graph={path}", f"--config.methods={method}"))]


def flags(rng: random.Random, folder: Path, finished: Path) -> list[Command]:
    """One or two flags of any task with any values."""
    task = rng.choice(("solve", "place", "compare", "report", "deploy", "pretrain", "sing"))
    given = [mutators.flag(rng, list(SUMMARIES)) for _ in range(rng.choice((1, 1, 2)))]
    sized = ("--config.methods=topological", "--config.method=topological", "--config.measure_s=.1")
    graph = ("--config.graph=synthetic:family=layered,ops=6", "--config.evaluate=simulate")
    return [Command((*_MODEL, *sized, *graph, f"--task={task}", *given))]


def run_directory(rng: random.Random, folder: Path, finished: Path) -> list[Command]:
    """A finished run directory of which a file is damaged."""
    workdir = folder / "run"
    shutil.copytree(finished, workdir)
    files = sorted(p for p in workdir.rglob("*") if p.is_file() and "figures" not in p.parts)
    path = rng.choice(files)
    data = path.read_bytes()
    if rng.random() < 0.1:
        path.unlink()
        path.mkdir()
    elif path.suffix == ".json":
        text = mutators.of_json(rng, data.decode())
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    else:
        path.write_bytes(mutators.of_bytes(rng, data))
    task = rng.choice(("place", "report", "deploy"))
    return [Command((*_PLACE, f"--task={task}"))]


def broken_off(rng: random.Random, folder: Path, finished: Path) -> list[Command]:
    """A command that is killed or interrupted at some point, and then the same to its end."""
    number = rng.choice((signal.SIGKILL, signal.SIGINT))
    after_s = rng.uniform(0.05, 4.0)
    may = frozenset({0, 130, -number})
    broken = functools.partial(send_after, number, after_s)
    return [Command(_PLACE, may, broken), Command(_PLACE, frozenset({0}))]


KINDS: dict[str, Kind] = {
    kind.__name__: kind for kind in (workload, model, flags, run_directory, broken_off)
}


def send_after(number: int, after_s: float) -> None:
    """Sends this process a signal."""
    timer = threading.Timer(after_s, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def try_one(kind: str, seed: int, finished: Path, *, show: bool = False) -> Outcome:
    """Makes an input and runs its commands."""
    rng = random.Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = 0
        for command in KINDS[kind](rng, folder, finished):
            argv = (f"--workdir={folder / 'run'}", *command.flags)
            try:
                code, out, err = answer(*argv, broken=command.broken, limit_s=LIMIT_S)
            except AssertionError as error:
                return Outcome(kind, seed, 0, f"{error}: {' '.join(argv)}")
            if show:
                print(*argv, f"exit code {code}", out, err, sep="\n")
            if complaint := _complaint(command, code, out, err, folder / "run"):
                return Outcome(kind, seed, code, f"{complaint}: {' '.join(argv)}")
        return Outcome(kind, seed, code, "")


def _complaint(command: Command, code: int, out: str, err: str, workdir: Path) -> str:
    """What is wrong with how a command ended."""
    last = (err.strip().splitlines() or [""])[-1]
    if code not in command.may:
        return f"exit code {code}, {last!r}"
    # Python reports an interrupt that falls into a garbage collector's callback, and goes on.
    if (out + err).count("Traceback") > err.count("Exception ignored in"):
        return "a traceback"
    if code in (2, 3) and not last.startswith("error: "):
        return f"exit code {code} without a reason, {last!r}"
    if code == 2 and sum(line.startswith("error: ") for line in err.splitlines()) > 1:
        return "several errors"
    writes = code == 0 and "--task=report" not in command.flags
    for path in workdir.glob("*.json") if writes else ():
        try:
            json.loads(path.read_text())
        except (OSError, ValueError) as error:
            return f"{path.name} is none: {error}"
    return ""


def finished_run(workdir: Path) -> Path:
    """A run directory with everything that a command in the simulator writes."""
    code, out, err = answer(f"--workdir={workdir}", *_PLACE)
    assert code == 0, (out, err)
    return workdir


@functools.cache
def _onnx() -> bytes:
    """Two products with a sum and a maximum between them, and an integer input that looks up."""
    generator = np.random.default_rng(0)
    tensors = {
        "first": generator.standard_normal((4, 8)).astype(np.float32),
        "bias": np.zeros(8, np.float32),
        "second": generator.standard_normal((8, 3)).astype(np.float32),
        "table": generator.standard_normal((5, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "look_up"),
        helper.make_node("Add", ["x", "rows"], ["sum"], "add"),
        helper.make_node("MatMul", ["sum", "first"], ["h"], "product"),
        helper.make_node("Add", ["h", "bias"], ["b"], "shift"),
        helper.make_node("Relu", ["b"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "second"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4]),
            helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def drawn(count: int, first_seed: int = 0) -> list[tuple[str, int]]:
    """So many inputs, of what takes longer the fewer."""
    cycle = ("workload", "model", "flags") * 4 + ("run_directory",)
    pairs = [(cycle[seed % len(cycle)], seed) for seed in range(first_seed, first_seed + count)]
    return [("broken_off", seed) if seed % 50 == 49 else (kind, seed) for kind, seed in pairs]


def main(argv: list[str]) -> int:
    """Prints what became of the inputs, by kind; 1 if anything is wrong with any."""
    if len(argv) == 2:
        with tempfile.TemporaryDirectory() as folder:
            finished = finished_run(Path(folder) / "finished")
            outcome = try_one(argv[0], int(argv[1]), finished, show=True)
        print(outcome)
        return bool(outcome.complaint)
    began_s, inputs = time.monotonic(), drawn(int(argv[0]) if argv else 5_000)
    with tempfile.TemporaryDirectory() as folder, futures.ThreadPoolExecutor(AT_ONCE) as pool:
        finished = finished_run(Path(folder) / "finished")
        outcomes = list(pool.map(lambda pair: try_one(*pair, finished), inputs))
    wrong = [outcome for outcome in outcomes if outcome.complaint]
    for outcome in wrong:
        print(f"{outcome.kind} {outcome.seed}: {outcome.complaint}")
    for kind in KINDS:
        codes = collections.Counter(o.code for o in outcomes if o.kind == kind)
        print(f"{kind}: {dict(sorted(codes.items()))}")
    seconds = time.monotonic() - began_s
    print(f"{len(outcomes)} inputs in {seconds:.0f} s, {len(wrong)} of them answered wrongly")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
