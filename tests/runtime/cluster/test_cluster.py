"""Hosts of a cluster: who is chosen, and that nothing is lost with one of them.

The host b dies in the last of these tests.
"""

import contextlib
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
from placement.runtime import devices
from placement.runtime.cluster import hosts as hosts_lib
from placement.runtime.cluster import measurer as measurer_lib
from placement.runtime.cluster import pool as pool_lib
from placement.runtime.cluster.hosts import Choice, Host
from placement.runtime.cluster.pool import Job, Pool
from placement.runtime.measurement import evaluate
from placement.runtime.measurement import local as local_lib
from placement.runtime.measurement.request import Candidate, Interval, Measurement
from tests import clusters
from tests.runtime import small

NEW = {"processor": "new", "cores": [0, 1]}
OLD = {"processor": "old", "cores": [0, 1]}
KINDS = ("conv", "relu")


pytestmark = pytest.mark.alone  # deadlines; and one cluster is enough


@pytest.fixture(scope="module")
def running():
    with clusters.running("a", "b") as (made, nodes):
        yield made, nodes


@pytest.fixture
def said() -> list[str]:
    return []


def hosts(running, *names: str) -> tuple[Host, ...]:
    _, nodes = running
    return tuple(Host(name, nodes[name].node_id, NEW) for name in names)


def pool(running, said, *names: str) -> Pool:
    return Pool(hosts(running, *names), contextlib.nullcontext, (), said.append)


@pytest.mark.parametrize(
    ("own", "used", "left_out"),
    [
        ("1", ["b"], ["a", "c", "d"]),  # alone, but the driver's
        ("elsewhere", ["a", "c", "d"], ["b"]),  # the largest group
        ("3", ["d", "a", "c"], ["b"]),  # the driver's comes first
    ],
)
def test_hosts_are_chosen_that_are_alike(own, used, left_out):
    given = [Host("c", "2", NEW), Host("a", "0", NEW), Host("b", "1", OLD), Host("d", "3", NEW)]
    choice = hosts_lib.choose(given, own)
    assert [host.name for host in choice.hosts] == used
    assert [line.split(":")[0] for line in choice.left_out] == left_out


def test_of_groups_of_one_size_the_first_name_decides_and_the_rest_is_told_why():
    given = [Host("b", "1", NEW), Host("a", "0", OLD)]
    assert hosts_lib.choose(given, "elsewhere") == Choice(
        (Host("a", "0", OLD),), ("b: processor new, not old",)
    )
    given = [Host("a", "0", NEW), Host("b", "1", NEW | {"cores": [2, 3]})]
    assert hosts_lib.choose(given, "0").left_out == ("b: cores [2, 3], not [0, 1]",)


def test_ray_that_is_not_installed_is_one_line_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"-e '\.\[distributed\]"):
        hosts_lib.survey(devices.describe_hardware)


def test_hosts_tell_their_hardware_and_those_of_a_kind_measure(running, said):
    odd = running[1]["b"].node_id

    def describe() -> dict[str, Any]:
        import ray

        return OLD if ray.get_runtime_context().get_node_id() == odd else NEW

    here = hosts_lib.survey(devices.describe_hardware)
    assert [(host.name, host.hardware) for host in here.hosts] == [
        (name, devices.describe_hardware()) for name in ("a", "b")
    ]
    choice = hosts_lib.survey(describe)
    assert [host.name for host in choice.hosts] == ["a"]
    assert choice.left_out == ("b: processor old, not new",)
    model = small.convolutions()
    on = devices.resolve("host")
    with measurer_lib.ClusterMeasurer(model, on, here.hosts, say=said.append) as measurer:
        measured = evaluating(model, measurer, evaluate.MeasurementCache())
        assert np.isfinite(measured(placements(4))).all()
        assert set(measurer.answers) == {"a", "b"}


def placements(count: int) -> np.ndarray:
    """int32 [count, 4], distinct, none of them the baseline."""
    return (np.arange(1, count + 1)[:, None] >> np.arange(4) & 1).astype(np.int32)


def evaluating(model, measurer, cache) -> evaluate.MeasuredEvaluate:
    """Of placements of the model's four convolutions, each with its ReLU."""
    names = [device.name for device in measurer.devices]

    def candidate(placement: np.ndarray) -> Candidate:
        where = {f"{kind}_{i}": names[d] for i, d in enumerate(placement) for kind in KINDS}
        return Candidate(small.everywhere(model, names[0], **where), measurer.devices)

    return evaluate.MeasuredEvaluate(
        measurer, np.zeros(4, np.int32), candidate, cache, min_rounds=6, time_limit_s=0.0
    )


def measures(node: Any) -> bool:
    """Whether a process that measures runs on a node."""
    below, found = {node.all_processes["raylet"][0].process.pid}, False
    for _ in range(3):  # raylet, actor, worker
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in below:
                    below.add(int(path.name))
                    found |= (
                        b"placement.runtime.measurement.worker" in (path / "cmdline").read_bytes()
                    )
    return found


class LosesAll:
    """A measurer whose hosts are all lost after the first part."""

    fingerprint = "model"
    devices = devices.resolve("host")

    def measure_chunks(self, request):
        once = Interval(1.0, 1.0, 1.0, 6)
        one = Measurement(once, once, 1, 0.0, 1, True, (), 1.0, 0.0, 0.0, 1.0, 0.1)
        yield {0: one, 1: one}
        raise ChildProcessError("no host is left")


def test_what_was_measured_before_all_hosts_are_lost_is_kept(tmp_path):
    path = tmp_path / "cache.jsonl"
    measured = evaluating(small.convolutions(), LosesAll(), evaluate.MeasurementCache(path))
    with pytest.raises(ChildProcessError, match="no host"):
        measured(placements(3))
    assert len(path.read_text().splitlines()) == 2


def test_jobs_are_each_done_once_wherever_a_process_dies(running, said, tmp_path):
    def dies_once(_: None, number: int) -> int:
        marker = tmp_path / str(number)
        if number % 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pool(running, said, "a", "b") as jobs:
        found = list(jobs.run([Job(f"job {i}", dies_once, (i,)) for i in range(4)]))
        assert sorted(found) == [(i, i) for i in range(4)]
        assert jobs.losses == 2
        assert sum(jobs.answers.values()) == 4
    assert sorted(line.partition("; ")[2] for line in said) == [
        "job 1 given to another host",
        "job 3 given to another host",
    ]


def test_a_job_that_is_lost_every_time_ends_the_run_but_not_what_others_are_at(
    running, said, tmp_path
):
    def fails(_: None) -> None:
        (tmp_path / f"{time.monotonic()}").touch()
        raise OSError("the disk is full")

    def takes_long(_: None) -> str:
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.01)
        time.sleep(1)  # until the loss is known
        return "done"

    found: list[tuple[int, str]] = []
    jobs = [Job("long", takes_long), Job("the job", fails)]
    with (
        pool(running, said, "a", "b") as both,
        pytest.raises(ChildProcessError, match=r"the job lost 3 times, .* the disk is full"),
    ):
        found.extend(both.run(jobs))
    assert found == [(0, "done")]
    assert len(said) == 2


def test_a_host_that_is_busy_is_waited_for_and_named(running, said, monkeypatch):
    import ray

    class Other: ...

    (b,) = hosts(running, "b")
    other = ray.remote(Other).options(**hosts_lib.exclusive_options(b.node)).remote()
    ray.get(other.__ray_ready__.remote())
    monkeypatch.setattr(pool_lib, "_BUSY_S", 0.5)

    def free(text: str) -> None:
        said.append(text)
        ray.kill(other)

    with Pool([b], contextlib.nullcontext, (), free) as jobs:
        assert list(jobs.run([Job("a job", lambda _: 1)])) == [(0, 1)]
    assert said == ["host b has not started: it may be busy with other work"]


def test_what_is_wrong_with_a_job_itself_is_raised_at_once(running, said):
    def refuses(_: None) -> None:
        raise UserError("no such thing")

    with pool(running, said, "a") as jobs:
        with pytest.raises(UserError, match=r"^no such thing$"):
            list(jobs.run([Job("the job", refuses)]))
        assert (jobs.losses, said) == (0, [])


def test_a_late_job_is_given_to_another_host_whose_answer_counts(running, said, tmp_path):
    def waits(_: None, seconds: float, first: Path) -> str:
        if first.exists():
            return "second"
        first.touch()
        time.sleep(seconds)
        return "first"

    with pool(running, said, "a", "b") as jobs:
        started = [Job("a start", waits, (0.5, tmp_path / name)) for name in "ab"]
        assert len(list(jobs.run(started))) == 2
        late = Job("a job", waits, (60.0, tmp_path / "late"), deadline_s=2.0)
        began = time.monotonic()
        assert list(jobs.run([late])) == [(0, "second")]
        assert time.monotonic() - began < 30
        assert said == ["host a is late with a job"]


def test_a_host_that_does_not_answer_for_twice_the_time_is_started_again(running, said, tmp_path):
    def hangs_once(_: None) -> str:
        marker = tmp_path / "hung"
        if marker.exists():
            return "done"
        marker.touch()
        time.sleep(60)
        return "too late"

    with pool(running, said, "b") as jobs:
        assert list(jobs.run([Job("a start", lambda _: 1)])) == [(0, 1)]
        assert list(jobs.run([Job("a job", hangs_once, deadline_s=1.0)])) == [(0, "done")]
        assert jobs.losses == 1
    assert said == [
        "host b is late with a job",
        "host b: does not answer; a job given to another host",
    ]


def test_a_host_that_dies_while_it_measures_loses_nothing(running, said, tmp_path):
    made, nodes = running
    path, model = tmp_path / "cache.jsonl", small.convolutions()
    both = hosts(running, "a", "b")
    with measurer_lib.ClusterMeasurer(
        model, devices.resolve("host"), both, say=said.append
    ) as measurer:

        def kill() -> None:
            while not measures(nodes["b"]):
                time.sleep(0.01)
            made.remove_node(nodes["b"])

        killer = threading.Thread(target=kill)
        killer.start()
        measured = evaluating(model, measurer, evaluate.MeasurementCache(path))
        seconds = measured(placements(8))
        killer.join()
        assert np.isfinite(seconds).all()
        assert measurer.losses == 1
        assert set(measurer.answers) == {"a"}
        assert measured.num_measurements == 8
    assert [line for line in said if "host b: has left the cluster" in line] == said
    assert "5 placements given to another" in said[0]  # four and the baseline
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({record["key"] for record in records}) == len(records) == 9
    with local_lib.LocalMeasurer(model, devices.resolve("host")) as local:
        again = evaluating(model, local, evaluate.MeasurementCache(path))
        np.testing.assert_array_equal(again(placements(8)), seconds)
        assert again.num_measurements == 0  # this machine's are the same measurements
