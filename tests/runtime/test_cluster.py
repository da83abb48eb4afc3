"""Hosts of a cluster: which are chosen, and that nothing is lost with one of them.

The host b dies in the last of these tests.
"""

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placement.errors import UserError
from placement.runtime import cluster, devices
from placement.runtime.cluster import ClusterMeasurer, Host, Job, Pool
from placement.runtime.measurement import evaluate
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.request import Candidate
from tests import clusters
from tests.runtime import small

NEW = {"processor": "new", "cores": [0, 1]}
OLD = {"processor": "old", "cores": [0, 1]}
KINDS = ("conv", "relu")


@pytest.fixture(scope="module")
def running():
    with clusters.running("a", "b") as (made, nodes):
        yield made, nodes


@pytest.fixture
def messages() -> list[str]:
    return []


def hosts(running, *names: str) -> tuple[Host, ...]:
    _, nodes = running
    return tuple(Host(name, nodes[name].node_id, NEW) for name in names)


def open_pool(running, messages, *names: str) -> Pool:
    return Pool(hosts(running, *names), contextlib.nullcontext, messages.append)


@pytest.mark.parametrize(
    ("driver", "used", "left_out"),
    [
        ("1", ["b"], ["a", "c", "d"]),  # alone, but the driver's
        ("elsewhere", ["a", "c", "d"], ["b"]),  # the largest group
        ("3", ["d", "a", "c"], ["b"]),  # the driver's comes first
    ],
)
def test_like_hosts_are_chosen(driver, used, left_out):
    given = [Host("c", "2", NEW), Host("a", "0", NEW), Host("b", "1", OLD), Host("d", "3", NEW)]
    choice = cluster.choose(given, driver)
    assert [host.name for host in choice.hosts] == used
    assert [line.split(":")[0] for line in choice.left_out] == left_out


def test_missing_ray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="or the extra 'distributed'"):
        cluster.survey(devices.describe_hardware)


def placements(count: int) -> np.ndarray:
    """int32 [count, 4], distinct, none of them the baseline."""
    return (np.arange(1, count + 1)[:, None] >> np.arange(4) & 1).astype(np.int32)


def evaluating(model, measurer, cache) -> evaluate.MeasuredEvaluate:
    """Of placements of the model's four convolutions, each with its ReLU."""
    names = [device.name for device in measurer.devices]

    def candidate(placement: np.ndarray) -> Candidate:
        where = {f"{kind}_{i}": names[d] for i, d in enumerate(placement) for kind in KINDS}
        return Candidate(small.everywhere(model, names[0], **where), measurer.devices)

    return evaluate.MeasuredEvaluate(measurer, np.zeros(4, np.int32), candidate, cache)


def test_hosts_describe_themselves(running):
    odd = running[1]["b"].node_id

    def describe() -> dict[str, Any]:
        import ray

        return OLD if ray.get_runtime_context().get_node_id() == odd else NEW

    here = cluster.survey(devices.describe_hardware)
    expected = [(name, devices.describe_hardware()) for name in ("a", "b")]
    assert [(host.name, host.hardware) for host in here.hosts] == expected
    choice = cluster.survey(describe)
    assert [host.name for host in choice.hosts] == ["a"]
    assert choice.left_out == ("b: processor old, not new",)
    assert cluster.call(choice.hosts[0], max, 1, 2) == 2


def test_jobs_survive_killed_processes(running, messages, tmp_path):
    def die_once(number: int, _: None) -> int:
        marker = tmp_path / str(number)
        if number % 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with open_pool(running, messages, "a", "b") as pool:
        answers = list(
            pool.run([Job(f"job {i}", functools.partial(die_once, i)) for i in range(4)])
        )
        assert sorted(answers) == [(i, i) for i in range(4)]
        assert pool.losses.total() == 2
        assert pool.answers.total() == 4
    assert sorted(line.partition("; ")[2] for line in messages) == [
        "job 1 is lost and done again",
        "job 3 is lost and done again",
    ]


def test_errors_of_jobs(running, messages):
    def raise_error(error: Exception, _: None) -> None:
        raise error

    def run(pool: Pool, error: Exception) -> None:
        list(pool.run([Job("the job", functools.partial(raise_error, error))]))

    with open_pool(running, messages, "a") as pool:
        with pytest.raises(UserError, match=r"^no such thing$"):
            run(pool, UserError("no such thing"))
        assert (pool.losses.total(), messages) == (0, [])
        with pytest.raises(ChildProcessError, match=r"no host is left; .* the disk is full"):
            run(pool, OSError("the disk is full"))
    assert len(messages) == 3


def is_measuring(node: Any) -> bool:
    """Whether a process that measures runs on a node."""
    below, result = {node.all_processes["raylet"][0].process.pid}, False
    for _ in range(3):  # raylet, actor, worker
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in below:
                    below.add(int(path.name))
                    command = (path / "cmdline").read_bytes()
                    result |= b"placement.runtime.measurement.worker" in command
    return result


def test_dying_hosts_lose_no_measurement(running, messages, tmp_path):
    made, nodes = running
    path, model, host_devices = tmp_path / "cache.jsonl", small.convolutions(), "host"
    arguments = devices.resolve(host_devices), hosts(running, "a", "b"), None, messages.append
    with ClusterMeasurer(model, *arguments) as measurer:
        first = evaluating(model, measurer, evaluate.MeasurementCache())
        assert np.isfinite(first(placements(4))).all()
        assert set(measurer.answers) == {"a", "b"}

    def kill_b() -> None:
        while not is_measuring(nodes["b"]):
            time.sleep(0.01)
        made.remove_node(nodes["b"])

    with ClusterMeasurer(model, *arguments) as measurer:
        killer = threading.Thread(target=kill_b)
        killer.start()
        measured = evaluating(model, measurer, evaluate.MeasurementCache(path))
        seconds = measured(placements(8))
        killer.join()
        assert np.isfinite(seconds).all()
        assert measurer.losses.total() == 1
        assert set(measurer.answers) == {"a"}
        assert measured.num_measurements == 8
    assert messages == [
        "host b: has left the cluster; the measurement of 5 placements is lost and done again"
    ]
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({record["key"] for record in records}) == 9
    with LocalMeasurer(model, devices.resolve(host_devices)) as local:
        again = evaluating(model, local, evaluate.MeasurementCache(path))
        np.testing.assert_array_equal(again(placements(8)), seconds)
        assert again.num_measurements == 0  # this machine's are the same measurements
