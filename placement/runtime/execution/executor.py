"""Runs a placement with its devices at the same time, which HETERO cannot.

Every device has a thread of its own, bound to the device's core where it has one, and a queue. A
part (`placement.runtime.execution.split`) enters its device's queue when its last input is there
and the device has run those of its parts that come before it. Where several requests are under way
at once, inputs suffice, and the device takes the oldest request's part first, and of one request
the first of the split. A part reads the very memory that another wrote, wherever its device can.

Inference is synchronous on the device's thread: OpenVINO's CPU plug-in then computes on that
thread alone (one thread, pinning off), so that the thread's core is the device's core.
"""

import functools
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment, Split, split
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers


class Span(NamedTuple):
    """When a part ran, on the clock of `time.perf_counter`."""

    part: int
    begin_s: float
    end_s: float


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
        numbers = itertools.count()
        self.requests = [
            InferRequest(self.split, compiled, workers, waits_for, numbers)
            for _ in range(num_requests)
        ]

    def infer(self) -> None:
        """Runs the model on the inputs that are set, and waits for its outputs.

        One inference at a time: what several threads share has a lock (`network.Network`).

        Raises:
          RuntimeError: OpenVINO's own, or a device's thread has failed.
        """
        self.requests[0].infer()

    def set_input_tensor(self, index: int, tensor: ov.Tensor) -> None:
        """Sets an input of the model, of all requests; its memory is shared, not copied."""
        for request in self.requests:
            request.set_input_tensor(index, tensor)

    @property
    def output_tensors(self) -> list[ov.Tensor]:
        """The model's outputs, in order, valid until the next inference."""
        return self.requests[0].output_tensors

    @property
    def spans(self) -> list[Span]:
        """When each part ran in the last inference, in the order of their ends."""
        return list(self.requests[0].spans)

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value."""
        for request in self.requests:
            request.reset_state()

    def stream(self, count: int) -> float:
        """Runs `count` requests on the inputs that are set, `num_requests` at once.

        Those of a stateful model would mix their states.

        Returns:
          Seconds that each request adds, once the first `num_requests` have ended.

        Raises:
          ValueError: no more than `num_requests`.
        """
        if count <= self.num_requests:
            raise ValueError(
                f"{count} requests fill {self.num_requests} at once just once; give more"
            )
        free: queue.SimpleQueue[InferRequest] = queue.SimpleQueue()
        ended: list[float] = []

        def end(request: InferRequest) -> None:
            ended.append(time.perf_counter())
            free.put(request)

        for request in self.requests:
            free.put(request)
        for number in range(count):
            request = free.get()
            if request.failed:  # the others end what they are at
                free.put(request)
                break
            request.start(number, functools.partial(end, request))
        for _ in self.requests:
            free.get()
        _raise_first(self.requests)
        return (ended[-1] - ended[self.num_requests - 1]) / (count - self.num_requests)


class InferRequest:
    """Runs one inference at a time: a request of every part, and the memory between them.

    A thread each may use those of one executor at the same time.
    """

    def __init__(
        self,
        of: Split,
        compiled: Sequence[ov.CompiledModel],
        workers: Workers,
        waits_for: Sequence[frozenset[int]],
        numbers: Iterator[int],
    ):
        """Makes the requests of the parts; `Executor` makes these.

        Args:
          of: the model's parts.
          compiled: each of them.
          workers: that run them.
          waits_for: for each part, those that have to end before it starts.
          numbers: of inferences, shared by all of an executor: the lower go first.
        """
        self._numbers = numbers
        self._infer_requests = [model.create_infer_request() for model in compiled]
        self.spans: list[Span] = []
        self._split = of
        self._workers = workers
        self._lock = threading.Lock()
        self._waits_for = waits_for
        self._followers: list[list[int]] = [[] for _ in of.parts]
        for number, sources in enumerate(waits_for):
            for source in sources:
                self._followers[source].append(number)
        self._links = _links_between(of, compiled)
        for source, links in enumerate(self._links):
            self._hand_over(source, [link for link in links if link.static])
        # What has no fixed shape is handed over at every inference.
        self._links = [[link for link in links if not link.static] for links in self._links]
        self._missing: list[int] = []
        self._left = 0
        self._error: BaseException | None = None
        self._number = 0
        self._done: Callable[[], object] = lambda: None

    def infer(self) -> None:
        """Runs the model on the inputs that are set, and waits for its outputs.

        Raises:
          RuntimeError: OpenVINO's own, or a device's thread has failed.
        """
        done = threading.Semaphore(0)
        self.start(next(self._numbers), done.release)
        done.acquire()
        _raise_first([self])

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
        """Returns what went wrong in the last inference, and forgets it."""
        error, self._error = self._error, None
        return error

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value."""
        for infer_request in self._infer_requests:
            infer_request.reset_state()

    def set_input_tensor(self, index: int, tensor: ov.Tensor) -> None:
        """Sets an input of the model wherever a part reads it; its memory is shared, not copied."""
        for part, infer_request in zip(self._split.parts, self._infer_requests, strict=True):
            for port, (name, _) in enumerate(part.reads):
                if self._split.inputs.get(name) == index:
                    infer_request.set_input_tensor(port, tensor)

    @property
    def output_tensors(self) -> list[ov.Tensor]:
        """The model's outputs, in order, valid until the next inference."""
        tensors = {}
        for part, infer_request in zip(self._split.parts, self._infer_requests, strict=True):
            for port, result in enumerate(part.results, start=len(part.hands_over)):
                tensors[result] = infer_request.get_output_tensor(port)
        return [tensors[i] for i in sorted(tensors)]

    def _put(self, part: int) -> None:
        device = self._split.parts[part].device
        self._workers.put(device, (self._number, part), lambda: self._run(part))

    def _run(self, part: int) -> None:
        """On the device's thread: runs a part, and starts those that waited for it alone."""
        begin = time.perf_counter()
        try:
            if self._error is None:  # else the rest is only counted down
                self._infer_requests[part].infer()
                self._hand_over(part, self._links[part])
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
            tensor = self._infer_requests[source].get_output_tensor(link.output)
            self._infer_requests[link.reader].set_input_tensor(link.input, tensor)


def infer_side_by_side(
    executors: Sequence[Executor], count: int, until_s: float, alive: Callable[[], None]
) -> list[list[list[Span]]]:
    """Runs executors at the same time, each again and again, on the inputs that are set.

    Args:
      executors: of one request each, on devices that have threads of their own.
      count: inferences of each, at least, as the others do not end before.
      until_s: on the monotonic clock; no inference is begun later.
      alive: called after every inference.

    Returns:
      Of each executor the spans of each inference; those of the last one are left out, beside which
      others may have ended.

    Raises:
      RuntimeError: OpenVINO's own, or a device's thread has failed.
    """
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    found: list[list[list[Span]]] = [[] for _ in executors]
    requests = [executor.requests[0] for executor in executors]

    def start(number: int) -> None:
        requests[number].start(0, functools.partial(ended.put, number))

    for number in range(len(executors)):
        start(number)
    running = len(executors)
    while running:
        number = ended.get()
        alive()
        found[number].append(list(requests[number].spans))
        wanted = any(len(spans) <= count for spans in found) and time.monotonic() < until_s
        if wanted and not any(request.failed for request in requests):
            start(number)
        else:
            running -= 1
    _raise_first(requests)
    return [spans[:-1] for spans in found]


def _waits_for(of: Split, *, in_turn: bool) -> list[frozenset[int]]:
    """For each part, those that have to end before it starts.

    Where a device runs its parts in turn, it waits for its next part's inputs even if it could run
    a later part meanwhile: that one may be long, and others wait for the next.
    """
    last: dict[str, int] = {}
    waits_for = []
    for number, part in enumerate(of.parts):
        before = {last[part.device]} if in_turn and part.device in last else set()
        waits_for.append(frozenset(before.union(part.after)))
        last[part.device] = number
    return waits_for


def _raise_first(requests: Iterable[InferRequest]) -> None:
    """Raises what went wrong in the last inferences, if anything did."""
    errors = [error for request in requests if (error := request.take_error()) is not None]
    if errors:
        raise errors[0]


class _Link(NamedTuple):
    """An output of a part that is an input of another."""

    output: int
    reader: int
    input: int
    static: bool


def _links_between(of: Split, compiled: Sequence[ov.CompiledModel]) -> list[list[_Link]]:
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
    """Returns the share of an inference during which two devices or more were computing."""
    events = sorted(event for span in spans for event in ((span.begin_s, 1), (span.end_s, -1)))
    together, running = 0.0, 0
    for (begin_s, change), (end_s, _) in itertools.pairwise(events):
        running += change
        if running > 1:
            together += end_s - begin_s
    return together / max(events[-1][0] - events[0][0], 1e-12)
