"""Hosts of a Ray cluster that work in place of this machine. No other module imports ray.

A host is a node of the cluster that has CPUs. Measurements are compared only between hosts that
describe their hardware in the same way (`choose`). A `Pool` gives jobs to hosts, and repeats the
jobs of a lost host on another one.
"""

import contextlib
import dataclasses
import logging
import math
import operator
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Self

import openvino as ov

from placement.errors import UserError, import_extra
from placement.runtime.devices import Device
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.local import MAX_CHUNK_SIZE, LocalMeasurer
from placement.runtime.measurement.request import Answer, Failure, Measure, Measurement, Request
from placement.runtime.models import serialization
from placement.runtime.models.inputs import Inputs

_START_S = 120.0  # limit on a host's start of a process with all that it loads
_CONNECT_S = _CLOSE_S = 5.0
_BUSY_S = 15.0  # a message names a host whose process has not started after this time
_MAX_LOSSES = 3  # of a host's processes, before the host gets no more jobs


class Host(NamedTuple):
    """A node that can work."""

    name: str
    node: str  # Ray's ID of the node
    hardware: Mapping[str, Any]  # JSON-able; equal if measurements can be compared


class Choice(NamedTuple):
    """The hosts whose measurements can be compared, and the other hosts."""

    hosts: tuple[Host, ...]  # the driver's own first, then by name
    left_out: tuple[str, ...]  # 'NAME: reason'


def survey(describe: Callable[[], Mapping[str, Any]]) -> Choice:
    """Calls `describe` on every host for its hardware and chooses among them as `choose` does.

    A UserError says that Ray is not installed, no cluster runs, or no node can work.
    """
    ray = _connect()
    answers = {}
    for node in (n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) > 0):
        options = _place_on(node["NodeID"]) | {"num_cpus": 0, "max_retries": 0}
        answers[ray.remote(describe).options(**options).remote()] = node
    if answers:
        ray.wait(list(answers), num_returns=len(answers), timeout=_START_S)
    hosts, silent = [], []
    for answer, node in answers.items():
        try:
            hosts.append(Host(node["NodeName"], node["NodeID"], ray.get(answer, timeout=0)))
        except ray.exceptions.RayError as error:  # a timeout, too
            reason = " ".join(str(getattr(error, "cause", None) or error).split())[:200]
            silent.append(f"{node['NodeName']}: {reason}")
    if not hosts:
        reason = "; ".join(silent) or "no node has CPUs; start one: ray start --address=HOST:PORT"
        raise UserError(f"no host of the Ray cluster can work: {reason}")
    choice = choose(hosts, ray.get_runtime_context().get_node_id())
    return Choice(choice.hosts, (*choice.left_out, *silent))


def choose(hosts: Sequence[Host], driver_node: str) -> Choice:
    """Chooses the hosts that are like the driver's own, else the largest, first group of likes."""
    ordered = sorted(hosts, key=lambda host: (host.node != driver_node, host.name))
    described = [host.hardware for host in ordered]
    hardware = max(described, key=described.count)
    if ordered[0].node == driver_node:
        hardware = described[0]
    left_out = []
    for host in (host for host in ordered if host.hardware != hardware):
        pairs = {key: (host.hardware.get(key), value) for key, value in hardware.items()}
        differences = [f"{k} {other}, not {v}" for k, (other, v) in pairs.items() if other != v]
        left_out.append(f"{host.name}: {'; '.join(differences)}")
    return Choice(tuple(h for h in ordered if h.hardware == hardware), tuple(left_out))


def _connect() -> Any:
    """Returns the module ray, connected to the cluster; a UserError says that there is none."""
    # Ray then does not collapse repeated lines of the hosts, which is itself a message.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
    ray = import_extra("ray", "distributed")
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS") or "auto"
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdecimal() and "/" not in address:
            # Raises an OSError at once; `ray.init` would try for minutes and then exit.
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError) as error:
        location = "here" if address == "auto" else f"at RAY_ADDRESS={address}"
        advice = "start one with: ray start --head, or set measure_on='here'"
        raise UserError(f"no Ray cluster runs {location}; {advice}") from error
    return ray


def _place_on(node: str) -> dict[str, Any]:
    """Returns Ray's options for a process that takes all CPUs of a node, so that it runs alone."""
    ray = _connect()
    (num_cpus,) = [n["Resources"].get("CPU", 0) for n in ray.nodes() if n["NodeID"] == node]
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": num_cpus, "scheduling_strategy": strategy}


class Job(NamedTuple):
    """A task that any host can do."""

    description: str  # for messages
    function: Callable[[Any], Any]  # called on a host with the object that the host holds


class Pool:
    """One process on each of some hosts, for jobs; a context manager that ends them.

    A process takes all CPUs of its host, so that Ray gives the host no other work meanwhile. Ray's
    own retries silently repeat a job on the host that lost it, and wait for ever for a node that
    has left. So they are not used.
    """

    def __init__(
        self,
        hosts: Sequence[Host],  # the first ones are preferred
        open_context: Callable[[], contextlib.AbstractContextManager[Any]],  # on each host
        say: Callable[[str], None],  # receives a line about every loss
    ):
        """Prepares the pool; the process of a host starts with its first job."""
        self.hosts = list(hosts)  # that can still get jobs
        self.answers: Counter[str] = Counter()  # jobs done, by the name of the host
        self.losses: Counter[str] = Counter()  # lost processes, by the name of the host
        self._ray = _connect()
        self._open_context, self._say = self._ray.put(open_context), say
        self._actors: dict[str, Any] = {}  # by node

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends every process after it has tidied up."""
        if closing := [actor.close.remote() for actor in self._actors.values()]:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for host in self.hosts:
            self._kill(host)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        """Does all jobs, each on one host, and yields (number, answer) as each one ends.

        An OSError of a job counts as a loss of the host's process; any other exception is raised. A
        ChildProcessError says that no host is left.
        """
        ray, waiting, last_loss = self._ray, deque(enumerate(jobs)), ""
        running: dict[Any, tuple[Host, int, Job]] = {}  # by the reference to the answer
        try:
            while running or waiting:
                if not self.hosts:
                    raise ChildProcessError(f"no host is left{last_loss}")
                busy = [host for host, *_ in running.values()]
                idle = [host for host in self.hosts if host not in busy]
                # A host that has lost a process gets work last.
                idle = sorted(idle, key=lambda host: self.losses[host.name])[: len(waiting)]
                new = [host for host in idle if host.node not in self._actors]
                for host in new:
                    actor = ray.remote(_Actor).options(**_place_on(host.node))
                    self._actors[host.node] = actor.remote(self._open_context)
                starts = {self._actors[h.node].__ray_ready__.remote(): h.name for h in new}
                if starts:
                    _, late = ray.wait(list(starts), num_returns=len(starts), timeout=_BUSY_S)
                    for name in map(starts.__getitem__, late):
                        self._say(f"host {name} has not started: it may be busy with other work")
                for host in idle:
                    number, job = waiting.popleft()
                    reference = self._actors[host.node].call.remote(job.function)
                    running[reference] = host, number, job
                ended, _ = ray.wait(list(running))
                for reference in ended:
                    host, number, job = running.pop(reference)
                    try:
                        answer = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        cause = getattr(error, "cause", None)  # of a job's own error
                        if cause is not None and not isinstance(cause, OSError):
                            raise cause from error
                        self._kill(host)
                        self.losses[host.name] += 1
                        is_alive = host.node in (n["NodeID"] for n in ray.nodes() if n["Alive"])
                        if not is_alive or self.losses[host.name] == _MAX_LOSSES:
                            self.hosts.remove(host)
                        cause = cause or "its process has ended"
                        line = f"host {host.name}: {cause if is_alive else 'has left the cluster'}"
                        self._say(f"{line}; {job.description} is lost and done again")
                        last_loss = f"; the last was {line}"
                        waiting.appendleft((number, job))
                        continue
                    self.answers[host.name] += 1
                    yield number, answer
        finally:
            for host, *_ in running.values():  # after Ctrl-C, or an error of a job
                self._kill(host)

    def _kill(self, host: Host) -> None:
        if (actor := self._actors.pop(host.node, None)) is not None:
            self._ray.kill(actor)


def call(host: Host, function: Callable[..., Any], *args: Any) -> Any:
    """Runs a function on a host once it is free, and returns its result; raises as `Pool.run`."""
    with Pool([host], contextlib.nullcontext, lambda _: None) as pool:
        return next(pool.run([Job("a call", lambda _: function(*args))]))[1]


class _Actor:
    """The process on a host; it opens the object of its jobs in the first, whose error it is."""

    def __init__(self, open_context: Callable[[], Any]):
        self._stack = contextlib.ExitStack()
        self._open = cache(lambda: self._stack.enter_context(open_context()))

    def call(self, function: Callable[[Any], Any]) -> Any:
        return function(self._open())

    def close(self) -> None:
        self._stack.close()


class ClusterMeasurer(Pool):
    """The `measurer.Measurer` of several hosts; a context manager that frees them.

    A search's placements are divided among the hosts. Each host measures its share together with
    the baseline, so that every ratio compares two latencies of the same rounds on one host.
    """

    def __init__(
        self,
        model: ov.Model,
        devices: Sequence[Device],
        hosts: Sequence[Host],
        inputs: Inputs | None,
        say: Callable[[str], None],
    ):
        """Sends the model to the first host; the others get it with their first job."""
        self.devices = tuple(devices)
        content = serialization.to_bytes(model)

        def open_measurer() -> LocalMeasurer:
            return LocalMeasurer(ov.Core().read_model(*content), devices, inputs=inputs)

        super().__init__(hosts, open_measurer, say)
        names = operator.attrgetter("fingerprint", "computed_ops")
        try:
            self.fingerprint, self.computed_ops = self._run_one(names)
        except BaseException:
            self.__exit__()
            raise

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request on one host; if the host is lost, all of it on another one."""
        return self._run_one(operator.methodcaller("ask", request))

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures a share on each host and yields it when it is done; see `Measurer`."""
        indices = list(range(1, len(request.candidates)))
        size = max(1, min(math.ceil(len(indices) / max(1, len(self.hosts))), MAX_CHUNK_SIZE))
        shares = [indices[i : i + size] for i in range(0, len(indices), size)] or [[]]
        jobs = []
        for share in shares:
            fraction = max(1, len(share)) / max(1, len(indices))
            candidates = [request.candidates[i] for i in (0, *share)]
            time_s, compile_s = (s * fraction for s in (request.time_limit_s, request.compile_s))
            part = dataclasses.replace(
                request, candidates=candidates, time_limit_s=time_s, compile_s=compile_s
            )
            description = f"the measurement of {len(candidates)} placements"
            jobs.append(Job(description, operator.methodcaller("ask", part)))
        for number, outcomes in self.run(jobs):
            yield dict(zip((0, *shares[number]), outcomes, strict=True))

    def conditions(self) -> dict[str, Conditions]:
        """Returns the conditions on the first host to answer; none if no host is left."""
        try:
            return self._run_one(operator.methodcaller("conditions"))
        except ChildProcessError:  # the measurements count without their conditions
            return {}

    def _run_one(self, function: Callable[[LocalMeasurer], Any]) -> Any:
        return next(self.run([Job("the measurement of costs", function)]))[1]
