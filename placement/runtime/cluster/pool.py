"""Work for the hosts of a cluster: what is lost with one of them, another does.

Whoever works on a host takes all its CPUs, so that Ray gives the host nothing else meanwhile: a
placement is timed alone, whoever else uses the cluster. Work that a host is late with is given to
another too; of two answers the first counts.
"""

import contextlib
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from placement.runtime.cluster import hosts as hosts_lib
from placement.runtime.cluster.hosts import START_S, Host

_CLOSE_S = 5.0
_BUSY_S = 15.0  # after which a host that has not begun is told of
_TRIES = 3  # of a job
_LOSSES = 3  # of a host's process, before it gets nothing any more


class Job(NamedTuple):
    """Something to be done on any host."""

    what: str  # in words, for who is told that it was lost
    function: Callable[..., Any]  # of what the host holds and of `args`; importable there
    args: tuple[Any, ...] = ()
    deadline_s: float = math.inf  # after which another host is given it too


class _Seat:
    """A host, and the process there, once it is needed."""

    def __init__(self, host: Host):
        self.host = host
        self.actor: Any = None
        self.ready: Any = None  # a reference that has an answer when the process has begun
        self.since_s = 0.0
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
        self.given_up = ""  # why, once something cannot be done


class Pool:
    """A process on each of some hosts, for jobs; a context manager that ends them.

    Ray's own retries (`max_restarts`, `max_task_retries`) would not do: they repeat a job in
    silence where it was lost, and on a node that has left wait for ever. Here another host does it
    at once, who watches is told, and a job or a host that fails again and again is given up.
    """

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
        self._ray = hosts_lib.connected()
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
        """Returns how many hosts can still be given something."""
        return len(self._usable())

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        """Does all jobs, each on one host, and yields the number and the answer of each as it ends.

        What others are at is still yielded when a job turns out to be one that cannot be done.

        Raises:
          ChildProcessError: a job was lost too often, or no host is left.
          Exception: a job's own, unless it is an OSError: then its host has lost it.
        """
        batch = _Batch(next(self._batches), jobs)
        while len(batch.done) < len(jobs):
            self._hand_out(batch)
            if not any(run.batch == batch.number for run in self._running.values()):
                raise ChildProcessError(batch.given_up)
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
            batch.given_up = batch.given_up or "no host is left"
        for seat in usable:
            while batch.waiting and batch.waiting[0] in batch.done:
                batch.waiting.popleft()
            if not batch.waiting or batch.given_up:
                return
            if id(seat) not in busy:
                number = batch.waiting.popleft()
                self._start(seat, batch.number, number, batch.jobs[number])

    def _start(self, seat: _Seat, batch: int, number: int, job: Job) -> None:
        until_s = time.monotonic() + job.deadline_s
        if seat.actor is None:
            actor = self._ray.remote(_Actor)
            seat.actor = actor.options(**hosts_lib.whole(seat.host.node)).remote(
                self._open, self._given
            )
            seat.ready, seat.since_s = seat.actor.__ray_ready__.remote(), time.monotonic()
            until_s += START_S
        reference = seat.actor.call.remote(job.function, *job.args)
        self._running[reference] = _Run(seat, batch, number, job, until_s, late=False)

    def _next_answers(self) -> list[Any]:
        """References of what has ended, none if a deadline comes first."""
        until_s = min(run.until_s for run in self._running.values())
        left_s = None if math.isinf(until_s) else max(0.0, until_s - time.monotonic())
        starting = [run.seat for run in self._running.values() if run.seat.ready is not None]
        if starting:
            left_s = min(_BUSY_S, _BUSY_S if left_s is None else left_s)
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=left_s)
        for seat in starting:
            begun, _ = self._ray.wait([seat.ready], timeout=0)
            busy = not begun and time.monotonic() - seat.since_s > _BUSY_S
            if busy:
                self._say(f"host {seat.host.name} has not begun: it may be busy with other work")
            if begun or busy:
                seat.ready = None
        return ended

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
                raise error.cause from error
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
        line = f"host {run.seat.host.name}: {cause}"
        again = run.batch == batch.number and run.number not in batch.done
        if not self._usable():
            batch.given_up = f"no host is left; the last was {line}"
            return
        if not again:
            self._say(line)
            return
        batch.tries[run.number] += 1
        if batch.tries[run.number] == _TRIES:
            batch.given_up = f"{run.job.what} lost {_TRIES} times, the last by {line}"
            return
        self._say(f"{line}; {run.job.what} given to another")
        elsewhere = any(
            (other.batch, other.number) == (run.batch, run.number)
            for other in self._running.values()
        )
        if not elsewhere and run.number not in batch.waiting:
            batch.waiting.appendleft(run.number)

    def _end(self, seat: _Seat) -> None:
        if seat.actor is not None:
            self._ray.kill(seat.actor)
            seat.actor = seat.ready = None


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
