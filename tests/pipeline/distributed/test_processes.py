"""Two processes that train together, with two devices each, and a process with one device."""

import json
import os
import re
import socket
from pathlib import Path

import flax.serialization
import jax
import numpy as np
import pytest

from placement.graphs import coarsen
from placement.pipeline.distributed import processes
from placement.types import SegmentCosts, TensorBytes
from tests import helpers
from tests.experiments import command

_FLAGS = (
    *("--config.graph=synthetic:family=layered,ops=12,seed=1", "--config.evaluate=simulate"),
    *("--config.devices=roofline:cpu,gpu,gpu", "--config.objective=makespan"),
    "--config.method=hsdag:variant=paper,hidden_size=4,episode_steps=1",
    "--config.budget=35",  # three single devices, and four steps
    "--config.time_limit_s=600",  # The budget ends the search, and not the clock.
)
# What XLA says on CPUs, from threads that get into each other's lines.
_OF_GLOO = {"Gloo", "Rank", "is", "connected", "to", "peer", "ranks", "Expected", "number", "of"}


def _free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def _learned(workdir: Path) -> list[dict]:
    """Returns the records of the search's steps, without the time."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [
        {key: value for key, value in record.items() if isinstance(value, float | int)}
        for record in records
        if record["method"].startswith("hsdag")
    ]


def test_two_processes_agree_with_one_and_only_the_first_writes(tmp_path, monkeypatch):
    two_devices = "--xla_force_host_platform_device_count=2"
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {two_devices}")
    together = (f"--coordinator=127.0.0.1:{_free_port()}", "--num_processes=2")
    started = [
        command.start(tmp_path / str(number), *_FLAGS, *together, f"--process_id={number}")
        for number in range(2)
    ]
    monkeypatch.undo()
    code, _, err = command.run(tmp_path / "alone", *_FLAGS)
    assert code == 0, err
    for process in started:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
    assert set(re.findall("[A-Za-z]+", out)) <= _OF_GLOO, out
    assert not (tmp_path / "1").exists()
    placements = [
        json.loads((tmp_path / name / "placement.json").read_text())["placement"]
        for name in ("0", "alone")
    ]
    assert placements[0] == placements[1]
    records, expected = _learned(tmp_path / "0"), _learned(tmp_path / "alone")
    assert len(records) == len(expected) == 4
    for record, other in zip(records, expected, strict=True):
        assert record["loss"] == pytest.approx(other["loss"], rel=1e-3, abs=1e-4)
        assert record["mean_s"] == pytest.approx(other["mean_s"], rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--num_processes=2", "--process_id=0"), "--coordinator missing; give each"),
        (("--coordinator=here", "--num_processes=2", "--process_id=0"), "coordinator='here'"),
        (("--coordinator=h:1", "--num_processes=2", "--process_id=2"), "process_id=2 of num"),
    ],
)
def test_invalid_process_flags_are_refused_in_one_line(flags, message, tmp_path):
    code, _, err = command.run(tmp_path / "run", *_FLAGS, *flags)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("more", [False, True], ids=["without", "with tensors and segments"])
def test_a_broadcast_problem_is_unchanged(more):
    rng = np.random.default_rng(0)
    graph = coarsen.coarsen(helpers.random_dag(rng, 8, colocated=0.3)).graph
    costs = helpers.random_costs(rng, graph, 3)
    if more:
        tensors = np.float32(graph.edge_bytes)
        costs = costs._replace(
            tensor_bytes=TensorBytes(produced=2 * tensors, copied=tensors),
            segment_costs=SegmentCosts(
                np.stack([tensors] * 3, axis=1), costs.compute_s[0], 0.1 * costs.compute_s
            ),
            resources=np.array([[True, True], [True, False], [False, True]]),
        )
    problem = helpers.as_problem(graph, costs, "makespan")
    sent = flax.serialization.msgpack_serialize(processes.pack_problem(problem))
    received = processes.unpack_problem(flax.serialization.msgpack_restore(sent))
    assert jax.tree.all(jax.tree.map(np.array_equal, received.costs, problem.costs))
    assert (received.costs.resources is None) == (not more)
    assert (received.objective, received.devices) == (problem.objective, problem.devices)
    assert received.graph.op_names == graph.op_names
    assert received.graph.output_shapes == graph.output_shapes
    assert received.graph.member_types == graph.member_types
    np.testing.assert_array_equal(received.graph.tensors, graph.tensors)
