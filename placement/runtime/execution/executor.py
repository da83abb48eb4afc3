"""Runs a placement with its devices at the same time, which HETERO cannot.

Every device has a thread of its own, bound to the device's core where it has one, and a queue. A
part (`placement.runtime.execution.split`) enters its device's queue when its last input is there
and the device has run those of its parts that come before it. Where several requests are under way
at once, inputs suffice, and the device takes the oldest request's part first, and of one request
the first of the split. A part reads the very memory that another wrote, wherever its device can.

Inference is synchronous on the device's thread: OpenVINO's CPU plug-in then computes on that
thread alone (one thread, pinning off), so that the thread's core is the device's core.
"""

import contextlib
import ctypes
import functools
import heapq
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import openvino as ov

from placement.errors import UserError
from placement.runtime.devices import Device
from placement.runtime.errors import essence
from placement.runtime.execution.split import Segment, Split, split
from placement.runtime.execution.submodels import Submodels

_STOP = (float("inf"), -1)  # after every part of every request


class Span(NamedTuple):
    """When a part ran, on the clock of `time.perf_counter`."""

    part: int
    begin_s: float
    end_s: float


_Failed = Callable[[RuntimeError], None]  # what an inference does when a thread has failed
_Job = tuple[tuple[float, int], int, Callable[[], None] | None]  # priority, number, what to call


class Workers:
    """A thread for each device, bound to its core; executors share them.

    While an inference is under way a thread that is bound to a core waits for its next part
    spinning: a core that has gone to sleep takes 50 us and more to wake, which is what a small
    part takes to run. Threads that have to share a core do not spin.

    A thread that fails ends, and with it what is under way: `begin` says how those who wait hear of
    it. Nothing begins after that until `close`.
    """

    def __init__(self) -> None:
        """Without threads: `start` starts them, and they end with `close`."""
        self.threads: dict[str, int] = {}  # device name: the system's number of its thread
        self._queues: dict[str, _Jobs] = {}
        self._calls: dict[str, _Call] = {}
        self._cores: dict[int, list[str]] = {}  # core: the devices whose threads it has
        self._threads: list[threading.Thread] = []
        self._under_way: set[_Failed] = set()
        self._error: RuntimeError | None = None
        self._lock = threading.Lock()

    def start(self, devices: Iterable[Device]) -> None:
        """Starts the threads of those devices that have none.

        Raises:
          UserError: a device has a core that this process may not use.
          RuntimeError: the system gives no thread, or one has failed.
        """
        for device in devices:
            if device.name in self._queues:
                continue
            if device.core is not None and device.core not in os.sched_getaffinity(0):
                raise UserError(
                    f"{device.name} is to have core {device.core}, which this process may not use; "
                    "resolve the devices in the process that runs them"
                )
            waiting, started = _Jobs(), threading.Semaphore(0)
            thread = threading.Thread(
                target=self._work, args=(device, waiting, started), name=device.name, daemon=True
            )
            thread.start()
            started.acquire()
            self._threads.append(thread)
            self._raise_if_failed()
            self._queues[device.name] = waiting
            if device.core is not None:
                sharing = self._cores.setdefault(device.core, [])
                sharing.append(device.name)
                if len(sharing) == 1:
                    self._calls[device.name] = _Call()
                else:
                    self._stop_spinning(sharing[0])

    def put(self, device: str, priority: tuple[float, int], job: Callable[[], None] | None) -> None:
        """Lets a device's thread call `job`, those of lower `priority` first; None ends it."""
        self._queues[device].put(priority, job)
        if (call := self._calls.get(device)) is not None:
            call.make()

    def begin(self, failed: "_Failed") -> None:
        """An inference is under way; `failed` is called with the error of a thread that fails.

        Raises:
          RuntimeError: one has failed before.
        """
        with self._lock:
            self._raise_if_failed()
            self._under_way.add(failed)

    def end(self, failed: "_Failed") -> None:
        """The inference that began with this has ended."""
        with self._lock:
            self._under_way.discard(failed)
        self._wake()

    def stop(self) -> None:
        """Ends the threads once their queues are empty, and does not wait for it.

        It takes no lock, so that a finaliser may call it whatever its thread is at.
        """
        for name in list(self._queues):
            self.put(name, _STOP, None)

    def close(self) -> None:
        """Ends the threads once their queues are empty; `start` starts new ones."""
        self.stop()
        for thread in self._threads:
            thread.join()
        for kept in (self.threads, self._queues, self._calls, self._cores, self._threads):
            kept.clear()
        self._error = None

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def _wake(self) -> None:
        for call in list(self._calls.values()):
            call.make()

    def _stop_spinning(self, device: str) -> None:
        call = self._calls.pop(device, None)
        if call is not None:
            call.make()

    def _work(self, device: Device, waiting: "_Jobs", started: threading.Semaphore) -> None:
        try:
            if device.core is not None:
                os.sched_setaffinity(0, {device.core})
            self.threads[device.name] = threading.get_native_id()
            started.release()
            while (job := self._next(device.name, waiting)) is not None:
                job()
                del job  # which holds requests, until the next one else
        except BaseException as error:  # raised where callers wait
            self._fail(device, error)
            started.release()

    def _next(self, device: str, waiting: "_Jobs") -> Callable[[], None] | None:
        while self._under_way and (call := self._calls.get(device)) is not None:
            with contextlib.suppress(queue.Empty):
                return waiting.take(wait=False)
            call.wait()
        return waiting.take(wait=True)

    def _fail(self, device: Device, error: BaseException) -> None:
        """Tells all who wait that the thread of a device has ended."""
        told = RuntimeError(f"the thread of {device.name} has ended: {essence(error)}")
        told.__cause__ = error
        with self._lock:
            self._error = self._error or told
            under_way = list(self._under_way)
            self._under_way.clear()
        self._wake()
        for failed in under_way:
            failed(told)


class _Jobs:
    """A device's queue: what has the lowest priority first, and of equals the one put first."""

    def __init__(self) -> None:
        # A queue that a finaliser may put into even while its thread is at this very queue.
        self._arrived: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._sorted: list[_Job] = []  # of the device's thread alone

    def put(self, priority: tuple[float, int], job: Callable[[], None] | None) -> None:
        """Adds a job, from any thread."""
        self._arrived.put((priority, next(self._numbers), job))

    def take(self, *, wait: bool) -> Callable[[], None] | None:
        """Removes the first one.

        Raises:
          queue.Empty: there is none, and it is not to wait for one.
        """
        if wait and not self._sorted:
            self._sorted.append(self._arrived.get())
        with contextlib.suppress(queue.Empty):
            while True:
                heapq.heappush(self._sorted, self._arrived.get_nowait())
        if not self._sorted:
            raise queue.Empty
        return heapq.heappop(self._sorted)[-1]


class _Call:
    """One thread waits, spinning and without Python's lock, for another's call.

    It is a spin lock of the C library that is always taken: a call releases it once.
    """

    _libc = ctypes.CDLL(None)

    def __init__(self) -> None:
        self._lock = ctypes.c_int()
        self._at = ctypes.byref(self._lock)
        self._libc.pthread_spin_init(self._at, 0)
        self.wait()

    def wait(self) -> None:
        """Returns after the next call, or at once after one that nobody waited for."""
        self._libc.pthread_spin_lock(self._at)

    def make(self) -> None:
        """Calls; several before a wait are one."""
        self._libc.pthread_spin_unlock(self._at)


class Executor:
    """A compiled placement whose devices work at the same time."""

    def __init__(
        self,
        submodels_: Submodels,
        segments: Sequence[Segment],
        devices: Sequence[Device],
        workers: Workers,
        *,
        num_requests: int = 1,
    ):
        """Compiles what is new among the parts, and makes their requests.

        Args:
          submodels_: of the model.
          segments: as `split.split` takes them; their order is the order of priority.
          devices: those that the segments name, at least.
          workers: threads of devices that have none yet are started.
          num_requests: how many requests may be under way at once (`stream`).

        Raises:
          UserError: the segments do not fit the model.
          RuntimeError: OpenVINO's own.
        """
        self.split = split(submodels_.model, segments)
        used = {part.device for part in self.split.parts}
        self.devices = tuple(device for device in devices if device.name in used)
        self.num_requests = num_requests
        self.workers = workers
        workers.start(self.devices)
        compiled = submodels_.compile(self.split.parts, devices)
        waits_for = _waits_for(self.split, in_turn=num_requests == 1)
        self._lanes = [_Lane(self.split, compiled, workers, waits_for) for _ in range(num_requests)]

    def infer(self) -> None:
        """Runs the model on the inputs that are set, and waits for its outputs.

        One inference at a time: what several threads share has a lock (`network.Network`).

        Raises:
          RuntimeError: OpenVINO's own, or a device's thread has failed.
        """
        lane = self._lanes[0]
        done = threading.Semaphore(0)
        lane.start(0, done.release)
        done.acquire()
        _raise_first([lane])

    def set_input_tensor(self, index: int, tensor: ov.Tensor) -> None:
        """Sets an input of the model, on all lanes; its memory is shared, not copied."""
        for lane in self._lanes:
            lane.set_input(index, tensor)

    @property
    def output_tensors(self) -> list[ov.Tensor]:
        """The model's outputs, in order, valid until the next inference."""
        return self._lanes[0].outputs()

    @property
    def spans(self) -> list[Span]:
        """When each part ran in the last inference, in the order of their ends."""
        return list(self._lanes[0].spans)

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value."""
        for lane in self._lanes:
            for request in lane.requests:
                request.reset_state()

    def stream(self, count: int) -> float:
        """Runs `count` requests on the inputs that are set, as many at once as there are lanes.

        Those of a stateful model would mix their states.

        Returns:
          Seconds that each request adds, once as many as there are lanes have ended.

        Raises:
          UserError: no more requests than lanes.
        """
        if count <= self.num_requests:
            raise ValueError(
                f"{count} requests fill {self.num_requests} at once just once; give more"
            )
        free: queue.SimpleQueue[_Lane] = queue.SimpleQueue()
        ended: list[float] = []

        def end(lane: _Lane) -> None:
            ended.append(time.perf_counter())
            free.put(lane)

        for lane in self._lanes:
            free.put(lane)
        for number in range(count):
            lane = free.get()
            if lane.failed:  # the others end what they are at
                free.put(lane)
                break
            lane.start(number, functools.partial(end, lane))
        for _ in self._lanes:
            free.get()
        _raise_first(self._lanes)
        return (ended[-1] - ended[self.num_requests - 1]) / (count - self.num_requests)


class _Lane:
    """One request of every part, and the memory between them: runs one inference at a time."""

    def __init__(
        self,
        of: Split,
        compiled: Sequence[ov.CompiledModel],
        workers: Workers,
        waits_for: Sequence[frozenset[int]],
    ):
        self.requests = [model.create_infer_request() for model in compiled]
        self.spans: list[Span] = []
        self._split = of
        self._workers = workers
        self._lock = threading.Lock()
        self._waits_for = waits_for
        self._followers: list[list[int]] = [[] for _ in of.parts]
        for number, sources in enumerate(waits_for):
            for source in sources:
                self._followers[source].append(number)
        self._handed = _handovers(of, compiled)
        for source, links in enumerate(self._handed):
            self._hand_over(source, [link for link in links if link.static])
        # What has no fixed shape is handed over at every inference.
        self._handed = [[link for link in links if not link.static] for links in self._handed]
        self._missing: list[int] = []
        self._left = 0
        self._error: BaseException | None = None
        self._number = 0
        self._done: Callable[[], object] = lambda: None

    def start(self, number: int, done: Callable[[], object]) -> None:
        """Begins an inference; `done` is called from a device's thread when it has ended."""
        parts = self._split.parts
        self._number, self._done = number, done
        self._missing = [len(sources) for sources in self._waits_for]
        self._left = len(parts)
        self.spans.clear()
        self._workers.begin(self.fail)
        for part, sources in enumerate(self._waits_for):
            if not sources:
                self._put(part)

    def fail(self, error: RuntimeError) -> None:
        """Ends the inference that is under way with an error of a device's thread."""
        self._error = error
        self._done()

    @property
    def failed(self) -> bool:
        """Whether something went wrong in the last inference."""
        return self._error is not None

    def take_error(self) -> BaseException | None:
        """What went wrong in the last inference, told once."""
        error, self._error = self._error, None
        return error

    def set_input(self, index: int, tensor: ov.Tensor) -> None:
        for part, request in zip(self._split.parts, self.requests, strict=True):
            for port, (name, _) in enumerate(part.reads):
                if self._split.inputs.get(name) == index:
                    request.set_input_tensor(port, tensor)

    def outputs(self) -> list[ov.Tensor]:
        found = {}
        for part, request in zip(self._split.parts, self.requests, strict=True):
            for port, result in enumerate(part.results, start=len(part.hands_over)):
                found[result] = request.get_output_tensor(port)
        return [found[i] for i in sorted(found)]

    def _put(self, part: int) -> None:
        device = self._split.parts[part].device
        self._workers.put(device, (self._number, part), lambda: self._run(part))

    def _run(self, part: int) -> None:
        """On the device's thread: runs a part, and starts those that waited for it alone."""
        begin = time.perf_counter()
        try:
            if self._error is None:  # else the rest is only counted down
                self.requests[part].infer()
                self._hand_over(part, self._handed[part])
        except BaseException as error:  # raised again where the caller waits
            self._error = error
        span = Span(part, begin, time.perf_counter())
        with self._lock:
            self.spans.append(span)
            ready = []
            for follower in self._followers[part]:
                self._missing[follower] -= 1
                if self._missing[follower] == 0:
                    ready.append(follower)
            self._left -= 1
            ended = self._left == 0
        for follower in ready:
            self._put(follower)
        if ended:
            self._workers.end(self.fail)
            self._done()

    def _hand_over(self, source: int, links: Sequence["_Link"]) -> None:
        for link in links:
            tensor = self.requests[source].get_output_tensor(link.output)
            self.requests[link.reader].set_input_tensor(link.input, tensor)


def _waits_for(of: Split, *, in_turn: bool) -> list[frozenset[int]]:
    """For each part, those that have to end before it starts.

    Where a device runs its parts in turn, it waits for its next part's inputs even if it could run
    a later part meanwhile: that one may be long, and others wait for the next.
    """
    last: dict[str, int] = {}
    found = []
    for number, part in enumerate(of.parts):
        before = {last[part.device]} if in_turn and part.device in last else set()
        found.append(frozenset(before.union(part.after)))
        last[part.device] = number
    return found


def _raise_first(lanes: Iterable[_Lane]) -> None:
    """Raises what went wrong in the last inferences, if anything did."""
    errors = [error for lane in lanes if (error := lane.take_error()) is not None]
    if errors:
        raise errors[0]


class _Link(NamedTuple):
    """An output of a part that is an input of another."""

    output: int
    reader: int
    input: int
    static: bool


def _handovers(of: Split, compiled: Sequence[ov.CompiledModel]) -> list[list[_Link]]:
    """For each part, where its outputs go."""
    port = {
        tensor: (number, index)
        for number, part in enumerate(of.parts)
        for index, tensor in enumerate(part.hands_over)
    }
    links: list[list[_Link]] = [[] for _ in of.parts]
    for reader, part in enumerate(of.parts):
        for index, tensor in enumerate(part.reads):
            if tensor in port:
                source, output = port[tensor]
                static = compiled[source].outputs[output].get_partial_shape().is_static
                links[source].append(_Link(output, reader, index, static))
    return links


def overlap(spans: Sequence[Span]) -> float:
    """The share of an inference during which two devices or more were computing."""
    events = sorted(event for span in spans for event in ((span.begin_s, 1), (span.end_s, -1)))
    together, running = 0.0, 0
    for (begin_s, change), (end_s, _) in itertools.pairwise(events):
        running += change
        if running > 1:
            together += end_s - begin_s
    return together / max(events[-1][0] - events[0][0], 1e-12)
