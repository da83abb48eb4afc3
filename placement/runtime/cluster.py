"""Hosts of a Ray cluster, and work for them. No other module imports ray.

A host is a node of the cluster that has CPUs. Whoever works there takes all of them, so that Ray
gives the host nothing else meanwhile: a placement is timed alone, whoever else uses the cluster.

Measurements are compared only between hosts that answer alike when asked what they are (`choose`).
Work that is lost with a host, or that a host is late with, is given to another; of two answers the
first counts.
"""

import contextlib
import itertools
import json
import logging
import math
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_START_S = 120.0  # what a host may take to start a process and load what it works with
_CLOSE_S = 5.0
_REACH_S = 5.0
_TRIES = 3  # of a job
_LOSSES = 3  # of a host's process, before it gets nothing any more


class Host(NamedTuple):
    """A node that can work."""

    name: str
    node: str  # Ray's number of it
    hardware: Mapping[str, Any]  # JSON-able; equal where measurements can be compared


class Choice(NamedTuple):
    """Hosts whose measurements can be compared, and the others."""

    hosts: tuple[Host, ...]  # the driver's own first, then by name
    left_out: tuple[str, ...]  # 'NAME: why'


class Job(NamedTuple):
    """Something to be done on any host."""

    what: str  # in words, for who is told that it was lost
    function: Callable[..., Any]  # of what the host holds and of `args`; importable there
    args: tuple[Any, ...] = ()
    deadline_s: float = math.inf  # after which another host is given it too


def survey(describe: Callable[[], Mapping[str, Any]]) -> Choice:
    """Asks every host what it is, and chooses among them as `choose` does.

    Args:
      describe: runs on every host; returns its hardware.

    Raises:
      ValueError: Ray is not installed, no cluster runs, or none of its nodes can work.
    """
    ray = _connected()
    nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) > 0]
    if not nodes:
        raise ValueError(
            "no node of the Ray cluster has CPUs to work with; give it one: "
            "ray start --address=HOST:PORT"
        )
    names = Counter(node["NodeName"] for node in nodes)
    asked, hosts, silent = {}, [], []
    for node in nodes:
        number, name = node["NodeID"], node["NodeName"]
        asked[_task(number, describe)] = Host(
            name if names[name] == 1 else f"{name}/{number[:6]}", number, {}
        )
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_START_S)
    for reference, host in asked.items():
        if reference not in answered:
            silent.append(f"{host.name}: no answer within {_START_S:g} s")
            continue
        try:
            hosts.append(host._replace(hardware=ray.get(reference)))
        except ray.exceptions.RayError as error:
            silent.append(f"{host.name}: {_in_short(error)}")
    if not hosts:
        raise ValueError(f"no host of the Ray cluster can work: {'; '.join(silent)}")
    chosen = choose(hosts, ray.get_runtime_context().get_node_id())
    return Choice(chosen.hosts, (*chosen.left_out, *silent))


def choose(hosts: Sequence[Host], own: str) -> Choice:
    """The hosts that are alike: as the driver's own, else the largest group, ties by name.

    Args:
      hosts: one at least.
      own: the driver's node, whether or not it is among them.
    """
    ordered = sorted(hosts, key=lambda host: (host.node != own, host.name))
    groups: dict[str, list[Host]] = {}
    for host in ordered:
        groups.setdefault(json.dumps(host.hardware, sort_keys=True), []).append(host)
    chosen = max(groups.values(), key=lambda group: (group[0].node == own, len(group)))
    left_out = [
        f"{host.name}: {_difference(host.hardware, chosen[0].hardware)}"
        for host in ordered
        if host not in chosen
    ]
    return Choice(tuple(chosen), tuple(left_out))


def call(host: Host, function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns on a host, beside whatever is done there.

    Raises:
      ValueError: the function's own.
      ChildProcessError: the host is lost.
    """
    ray = _connected()
    try:
        return ray.get(_task(host.node, function, *args))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise ChildProcessError(f"host {host.name}: {_in_short(error)}") from error


class _Seat:
    """A host, and the process there, once it is needed."""

    def __init__(self, host: Host):
        self.host = host
        self.actor: Any = None
        self.losses = 0


class _Run(NamedTuple):
    """A job that a host is at."""

    seat: _Seat
    batch: int  # the call to `Pool.run` that it is of
    number: int
    job: Job
    until_s: float  # on the monotonic clock
    late: bool


class _Batch:
    """The jobs of a call to `Pool.run`."""

    def __init__(self, number: int, jobs: Sequence[Job]):
        self.number = number
        self.jobs = jobs
        self.waiting = deque(range(len(jobs)))
        self.done: set[int] = set()
        self.tries: Counter[int] = Counter()


class Pool:
    """A process on each of some hosts, for jobs; a context manager that ends them."""

    def __init__(
        self,
        hosts: Sequence[Host],
        open_: Callable[..., contextlib.AbstractContextManager[Any]],
        given: tuple[Any, ...],
        say: Callable[[str], None],
    ):
        """Starts nothing yet: a host's process starts with its first job.

        Args:
          hosts: those that come first are preferred.
          open_: makes, on each host, what its jobs work with.
          given: the arguments of `open_`, sent to each host once.
          say: told of whatever is lost or late.
        """
        self.answers: Counter[str] = Counter()  # jobs done, by the name of the host
        self.losses = 0  # of processes, with their hosts or alone
        self._ray = _connected()
        self._seats = [_Seat(host) for host in hosts]
        self._open, self._given = open_, self._ray.put(given)
        self._say = say
        self._running: dict[Any, _Run] = {}
        self._batches = itertools.count()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process: those at a job at once, the others when they have tidied up."""
        busy = {id(run.seat) for run in self._running.values()}
        idle = [seat.actor for seat in self._seats if seat.actor and id(seat) not in busy]
        closing = [actor.close.remote() for actor in idle]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        self._running.clear()
        for seat in self._seats:
            self._end(seat)

    def num_hosts(self) -> int:
        """How many hosts can still be given something."""
        return len(self._usable())

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        """Does all jobs, each on one host, and yields the number and the answer of each as it ends.

        Raises:
          ChildProcessError: a job was lost too often, or no host is left.
          Exception: a job's own, unless it is an OSError: then its host has lost it.
        """
        batch = _Batch(next(self._batches), jobs)
        while len(batch.done) < len(jobs):
            self._hand_out(batch)
            for reference in self._next_answers():
                run = self._running.pop(reference)
                try:
                    answer = self._ray.get(reference)
                except self._ray.exceptions.RayError as error:
                    self._lost(run, batch, self._cause(run, error))
                    continue
                self.answers[run.seat.host.name] += 1
                if run.batch == batch.number and run.number not in batch.done:
                    batch.done.add(run.number)
                    yield run.number, answer
            self._pass_on_what_is_late(batch)

    def _usable(self) -> list[_Seat]:
        usable = [seat for seat in self._seats if seat.losses < _LOSSES]
        return sorted(usable, key=lambda seat: seat.losses)

    def _hand_out(self, batch: _Batch) -> None:
        busy = {id(run.seat) for run in self._running.values()}
        usable = self._usable()
        if not usable:
            raise ChildProcessError("no host is left")
        for seat in usable:
            while batch.waiting and batch.waiting[0] in batch.done:
                batch.waiting.popleft()
            if not batch.waiting:
                return
            if id(seat) not in busy:
                number = batch.waiting.popleft()
                self._start(seat, batch.number, number, batch.jobs[number])

    def _start(self, seat: _Seat, batch: int, number: int, job: Job) -> None:
        until_s = time.monotonic() + job.deadline_s
        if seat.actor is None:
            actor = self._ray.remote(_Actor)
            seat.actor = actor.options(**_whole(self._ray, seat.host.node)).remote(
                self._open, self._given
            )
            until_s += _START_S
        reference = seat.actor.call.remote(job.function, *job.args)
        self._running[reference] = _Run(seat, batch, number, job, until_s, late=False)

    def _next_answers(self) -> list[Any]:
        """References of what has ended, none if a deadline comes first."""
        until_s = min(run.until_s for run in self._running.values())
        left_s = None if math.isinf(until_s) else max(0.0, until_s - time.monotonic())
        return self._ray.wait(list(self._running), num_returns=1, timeout=left_s)[0]

    def _pass_on_what_is_late(self, batch: _Batch) -> None:
        """Once late, a job is given to another host too; twice as late, its host has lost it."""
        now_s = time.monotonic()
        for reference, run in list(self._running.items()):
            if run.until_s > now_s:
                continue
            if run.late:
                del self._running[reference]
                self._lost(run, batch, "does not answer")
                continue
            until_s = now_s + run.job.deadline_s
            self._running[reference] = run._replace(until_s=until_s, late=True)
            if run.batch == batch.number and run.number not in batch.done:
                self._say(f"host {run.seat.host.name} is late with {run.job.what}")
                batch.waiting.append(run.number)

    def _cause(self, run: _Run, error: Exception) -> str:
        """Why a job has no answer; raises what is the job's own fault."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            if not isinstance(error.cause, OSError):
                raise error.cause from None
            return str(error.cause)
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if run.seat.host.node not in alive:
            run.seat.losses = _LOSSES
            return "has left the cluster"
        return "its process has ended"

    def _lost(self, run: _Run, batch: _Batch, cause: str) -> None:
        """Counts it, and has the job done again if nobody else has done it or is at it."""
        self.losses += 1
        run.seat.losses += 1
        self._end(run.seat)
        told = f"host {run.seat.host.name}: {cause}"
        again = run.batch == batch.number and run.number not in batch.done
        if not self._usable() and len(batch.done) < len(batch.jobs):
            raise ChildProcessError(f"no host is left; the last was {told}")
        if not again:
            self._say(told)
            return
        batch.tries[run.number] += 1
        if batch.tries[run.number] == _TRIES:
            raise ChildProcessError(f"{run.job.what} lost {_TRIES} times, the last by {told}")
        self._say(f"{told}; {run.job.what} given to another")
        elsewhere = any(
            (other.batch, other.number) == (run.batch, run.number)
            for other in self._running.values()
        )
        if not elsewhere and run.number not in batch.waiting:
            batch.waiting.appendleft(run.number)

    def _end(self, seat: _Seat) -> None:
        if seat.actor is not None:
            self._ray.kill(seat.actor)
            seat.actor = None


class _Actor:
    """On a host: holds what jobs work with, and does them."""

    def __init__(self, open_: Callable[..., Any], given: tuple[Any, ...]):
        self._open = lambda: open_(*given)
        self._stack = contextlib.ExitStack()
        self._held: list[Any] = []

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        if not self._held:  # here, for what goes wrong to be the job's
            self._held.append(self._stack.enter_context(self._open()))
        return function(self._held[0], *args)

    def close(self) -> None:
        self._stack.close()


def _connected() -> Any:
    """The module ray, connected to the cluster; it says nothing in the terminal.

    Raises:
      ValueError: it is not installed, or no cluster runs.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")  # what hosts print, and raylets
    try:
        import ray
    except ImportError as error:
        raise ValueError(
            "ray is not installed; pip install 'placement[distributed]', or leave measure_on=here"
        ) from error
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError) as error:
        where = "here" if address == "auto" else f"at RAY_ADDRESS={address}"
        raise ValueError(
            f"no Ray cluster runs {where}; start one with: ray start --head, or leave "
            "measure_on=here"
        ) from error
    return ray


def _reach(address: str) -> None:
    """Raises an OSError if nothing listens there: Ray would look for it for minutes, and exit."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in address:
        socket.create_connection((host, int(port)), _REACH_S).close()


def _task(node: str, function: Callable[..., Any], *args: Any) -> Any:
    """A reference to what a function returns on a node, busy or not."""
    ray = _connected()
    how = _whole(ray, node) | {"num_cpus": 0, "max_retries": 0}
    return ray.remote(function).options(**how).remote(*args)


def _whole(ray: Any, node: str) -> dict[str, Any]:
    """Options of what is to run on a node alone."""
    (cpus,) = [n["Resources"].get("CPU", 0) for n in ray.nodes() if n["NodeID"] == node]
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": cpus, "scheduling_strategy": strategy}


def _in_short(error: Exception) -> str:
    """One line of an error of Ray's."""
    cause = getattr(error, "cause", None)
    return " ".join(str(cause or error).split())[:200]


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In what hardware differs from that chosen, in a few words."""
    keys = [key for key in {**here, **there} if there.get(key) != here.get(key)]
    return "; ".join(f"{key} {_told(there.get(key))}, not {_told(here.get(key))}" for key in keys)


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
