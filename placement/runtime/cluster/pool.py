"""Jobs for the hosts of a cluster: another host repeats the jobs of a lost host.

A process on a host takes all CPUs of the host, so that Ray gives the host no other work meanwhile.
A placement is thus timed alone, whoever else uses the cluster. A job that is late on one host is
given to another host as well; the first of the two answers counts.
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
_BUSY_S = 15.0  # a message names a host whose process has not started after this time
_MAX_TRIES = 3  # of a job
_MAX_LOSSES = 3  # of a host's processes, before the host gets no more jobs


class Job(NamedTuple):
    """A task that any host can do."""

    description: str  # for messages
    # Called on a host with the object that the host holds and `args`; importable there.
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    deadline_s: float = math.inf  # the time after which another host gets the job too


class _Seat:
    """A host and its process, once the process is needed."""

    def __init__(self, host: Host):
        self.host = host
        self.actor: Any = None
        self.ready: Any = None  # a reference that resolves when the process has started
        self.start_s = 0.0
        self.losses = 0


class _Run(NamedTuple):
    """A job that runs on a host."""

    seat: _Seat
    batch: int  # the number of the call to `Pool.run` that the job belongs to
    number: int
    job: Job
    deadline_s: float  # on the monotonic clock
    is_late: bool


class _Batch:
    """The jobs of one call to `Pool.run`."""

    def __init__(self, number: int, jobs: Sequence[Job]):
        self.number = number
        self.jobs = jobs
        self.waiting = deque(range(len(jobs)))
        self.finished: set[int] = set()
        self.tries: Counter[int] = Counter()
        self.failure = ""  # the reason, once a job cannot be done


class Pool(contextlib.AbstractContextManager["Pool"]):
    """One process on each of some hosts, for jobs; a context manager that ends them.

    Ray's own retries (`max_restarts`, `max_task_retries`) are not used. They silently repeat a job
    on the host that lost it, and wait for ever for a node that has left. Here another host repeats
    the job at once and a message says so. A job or a host that fails again and again is given up.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        open_context: Callable[..., contextlib.AbstractContextManager[Any]],
        arguments: tuple[Any, ...],
        say: Callable[[str], None],
    ):
        """Prepares the pool; the process of a host starts with its first job.

        Args:
          hosts: the first ones are preferred.
          open_context: opens the object, on each host, that the jobs work with.
          arguments: of `open_context`; sent to each host once.
          say: receives a line about everything that is lost or late.
        """
        self.answers: Counter[str] = Counter()  # jobs done, by the name of the host
        self.losses = 0  # number of lost processes, with or without their hosts
        self._ray = hosts_lib.connect()
        self._seats = [_Seat(host) for host in hosts]
        self._open_context, self._arguments = open_context, self._ray.put(arguments)
        self._say = say
        self._running: dict[Any, _Run] = {}
        self._batch_numbers = itertools.count()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process: at once while it runs a job, else after it has tidied up."""
        busy = {id(run.seat) for run in self._running.values()}
        idle_actors = [seat.actor for seat in self._seats if seat.actor and id(seat) not in busy]
        closing = [actor.close.remote() for actor in idle_actors]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        self._running.clear()
        for seat in self._seats:
            self._kill(seat)

    def num_hosts(self) -> int:
        """Returns how many hosts can still get jobs."""
        return len(self._usable_seats())

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Any]]:
        """Does all jobs, each on one host, and yields (number, answer) as each one ends.

        When a job cannot be done, the answers of the jobs that are running are still yielded.

        Raises:
          ChildProcessError: a job was lost too often, or no host is left.
          Exception: a job's own, except OSError, which counts as a loss of the host's process.
        """
        batch = _Batch(next(self._batch_numbers), jobs)
        while len(batch.finished) < len(jobs):
            self._start_jobs(batch)
            if not any(run.batch == batch.number for run in self._running.values()):
                raise ChildProcessError(batch.failure)
            for reference in self._wait():
                run = self._running.pop(reference)
                try:
                    answer = self._ray.get(reference)
                except self._ray.exceptions.RayError as error:
                    self._handle_loss(run, batch, self._find_cause(run, error))
                    continue
                self.answers[run.seat.host.name] += 1
                if run.batch == batch.number and run.number not in batch.finished:
                    batch.finished.add(run.number)
                    yield run.number, answer
            self._handle_late_jobs(batch)

    def _usable_seats(self) -> list[_Seat]:
        """Returns the hosts that can get jobs, those with the fewest losses first."""
        usable = [seat for seat in self._seats if seat.losses < _MAX_LOSSES]
        return sorted(usable, key=lambda seat: seat.losses)

    def _start_jobs(self, batch: _Batch) -> None:
        """Starts a waiting job on every idle host."""
        busy = {id(run.seat) for run in self._running.values()}
        usable = self._usable_seats()
        if not usable:
            batch.failure = batch.failure or "no host is left"
        for seat in usable:
            # A late job is queued again; meanwhile its first host may have answered.
            while batch.waiting and batch.waiting[0] in batch.finished:
                batch.waiting.popleft()
            if not batch.waiting or batch.failure:
                return
            if id(seat) in busy:
                continue
            number = batch.waiting.popleft()
            job = batch.jobs[number]
            deadline_s = time.monotonic() + job.deadline_s
            if seat.actor is None:
                actor = self._ray.remote(_Actor)
                options = hosts_lib.exclusive_options(seat.host.node)
                seat.actor = actor.options(**options).remote(self._open_context, self._arguments)
                seat.ready, seat.start_s = seat.actor.__ray_ready__.remote(), time.monotonic()
                deadline_s += START_S
            reference = seat.actor.call.remote(job.function, *job.args)
            run = _Run(seat, batch.number, number, job, deadline_s, is_late=False)
            self._running[reference] = run

    def _wait(self) -> list[Any]:
        """Waits for the next answer or deadline; returns references to answers, if any."""
        deadline_s = min(run.deadline_s for run in self._running.values())
        remaining_s = None if math.isinf(deadline_s) else max(0.0, deadline_s - time.monotonic())
        starting = [run.seat for run in self._running.values() if run.seat.ready is not None]
        if starting:
            remaining_s = min(_BUSY_S, _BUSY_S if remaining_s is None else remaining_s)
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=remaining_s)
        for seat in starting:
            started, _ = self._ray.wait([seat.ready], timeout=0)
            is_busy = not started and time.monotonic() - seat.start_s > _BUSY_S
            if is_busy:
                self._say(f"host {seat.host.name} has not started: it may be busy with other work")
            if started or is_busy:
                seat.ready = None
        return ended

    def _handle_late_jobs(self, batch: _Batch) -> None:
        """Gives late jobs to another host too; after twice the time their host has lost them."""
        current_s = time.monotonic()
        for reference, run in list(self._running.items()):
            if run.deadline_s > current_s:
                continue
            if run.is_late:
                del self._running[reference]
                self._handle_loss(run, batch, "does not answer")
                continue
            deadline_s = current_s + run.job.deadline_s
            self._running[reference] = run._replace(deadline_s=deadline_s, is_late=True)
            if run.batch == batch.number and run.number not in batch.finished:
                self._say(f"host {run.seat.host.name} is late with {run.job.description}")
                batch.waiting.append(run.number)

    def _find_cause(self, run: _Run, error: Exception) -> str:
        """Returns the reason why a job has no answer; raises an error of the job itself."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            if not isinstance(error.cause, OSError):
                raise error.cause from error
            return str(error.cause)
        alive_nodes = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if run.seat.host.node not in alive_nodes:
            run.seat.losses = _MAX_LOSSES
            return "has left the cluster"
        return "its process has ended"

    def _handle_loss(self, run: _Run, batch: _Batch, cause: str) -> None:
        """Counts a loss, and queues the job again if no other host has done it or runs it."""
        self.losses += 1
        run.seat.losses += 1
        self._kill(run.seat)
        line = f"host {run.seat.host.name}: {cause}"
        is_open = run.batch == batch.number and run.number not in batch.finished
        if not self._usable_seats():
            batch.failure = f"no host is left; the last was {line}"
            return
        if not is_open:
            self._say(line)
            return
        batch.tries[run.number] += 1
        if batch.tries[run.number] == _MAX_TRIES:
            description = run.job.description
            batch.failure = f"{description} lost {_MAX_TRIES} times, the last by {line}"
            return
        self._say(f"{line}; {run.job.description} given to another host")
        runs_elsewhere = any(
            (other_run.batch, other_run.number) == (run.batch, run.number)
            for other_run in self._running.values()
        )
        if not runs_elsewhere and run.number not in batch.waiting:
            batch.waiting.appendleft(run.number)

    def _kill(self, seat: _Seat) -> None:
        if seat.actor is not None:
            self._ray.kill(seat.actor)
            seat.actor = seat.ready = None


class _Actor:
    """The process on a host: holds the object that jobs work with, and does the jobs."""

    def __init__(self, open_context: Callable[..., Any], arguments: tuple[Any, ...]):
        self._open = lambda: open_context(*arguments)
        self._stack = contextlib.ExitStack()
        self._objects: list[Any] = []  # one, once it is open

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        if not self._objects:  # opened here, so that an error in it is the job's
            self._objects.append(self._stack.enter_context(self._open()))
        return function(self._objects[0], *args)

    def close(self) -> None:
        self._stack.close()
