"""Execution of a placement whose devices work at the same time, which HETERO cannot do.

A placement is cut into parts (`placement.runtime.execution.split`). Every device has one thread,
bound to the device's core if it has one, and a queue of parts. A part enters its device's queue
when all parts that it waits for have ended: the parts that it reads from and, if only one request
is under way at a time, the previous part of its device. With several requests under way a device
takes the oldest request's part first, and of one request the first part of the split. A part reads
the memory that another part wrote, without a copy where the devices allow it.

Inference is synchronous on the device's thread. OpenVINO's CPU plug-in then computes on that very
thread (one inference thread, pinning off), so that the thread's core is the device's core.
"""

import functools
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment, SplitModel, split_model
from placement.runtime.execution.stream import RequestGroup
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers


class Span(NamedTuple):
    """The time during which a part ran, on the clock of `time.perf_counter`."""

    part: int
    begin_s: float
    end_s: float


class Executor(RequestGroup):
    """A compiled placement whose devices work at the same time.

    Only one thread may call `infer` at a time; callers that share an executor need a lock
    (`deployment.network.Network` has one).
    """

    requests: list["InferRequest"]

    def __init__(
        self,
        submodels: Submodels,
        segments: Sequence[Segment],
        devices: Sequence[Device],
        workers: Workers,
        *,
        num_requests: int = 1,
    ):
        """Compiles the parts that are not cached, and makes their requests.

        Args:
          submodels: the cache of compiled submodels of the model.
          segments: the segments of the placement, as for `split_model`. A device runs the parts of
            earlier segments first.
          devices: the devices that the segments name; there may be more.
          workers: the devices' threads; devices without a thread get one.
          num_requests: the number of requests that may be under way at once (`stream`).

        Raises:
          UserError: the segments do not fit the model.
          RuntimeError: OpenVINO cannot compile a part.
        """
        self.split = split_model(submodels.model, segments)
        used_devices = {part.device for part in self.split.parts}
        self.devices = tuple(device for device in devices if device.name in used_devices)
        self.workers = workers
        workers.start(self.devices)
        compiled = submodels.compile(self.split.parts, devices)
        # The parts that must end before each part starts. A single request runs the parts of a
        # device in order: a device then waits for the next part's inputs even if it could run a
        # later part meanwhile, because that one may be long and other devices may wait for the
        # next part.
        predecessors = []
        previous_part: dict[str, int] = {}  # of each device
        for number, part in enumerate(self.split.parts):
            required = set(part.sources)
            if num_requests == 1 and part.device in previous_part:
                required.add(previous_part[part.device])
            predecessors.append(frozenset(required))
            previous_part[part.device] = number
        request_numbers = itertools.count()
        super().__init__(
            [
                InferRequest(self.split, compiled, workers, predecessors, request_numbers)
                for _ in range(num_requests)
            ]
        )

    def stream(self, count: int) -> float:
        """Runs `count` requests, more than `num_requests`, on the inputs that are set.

        A stateful model must not be streamed: each request has its own state, and any request may
        serve any inference.

        Returns:
          The seconds that each request adds once the first `num_requests` have ended.

        Raises:
          RuntimeError: an inference failed.
        """
        assert count > self.num_requests
        free_requests: queue.SimpleQueue[InferRequest] = queue.SimpleQueue()
        ends_s: list[float] = []

        def end_callback(request: InferRequest) -> None:
            ends_s.append(time.perf_counter())
            free_requests.put(request)

        for request in self.requests:
            free_requests.put(request)
        for number in range(count):
            request = free_requests.get()
            if request.error is not None:  # start no more; the requests under way finish
                free_requests.put(request)
                break
            request.start(number, functools.partial(end_callback, request))
        for _ in self.requests:
            free_requests.get()
        _raise_first_error(self.requests)
        return (ends_s[-1] - ends_s[self.num_requests - 1]) / (count - self.num_requests)


class _Link(NamedTuple):
    """A tensor that one part sends to another."""

    output: int  # index among the sending part's outputs
    reader: int  # the part that reads it
    input: int  # index among the reading part's inputs


class InferRequest:
    """A request of every part and the memory between them; it runs one inference at a time.

    Different threads may use the requests of one executor at the same time.
    """

    def __init__(
        self,
        split: SplitModel,
        compiled: Sequence[ov.CompiledModel],
        workers: Workers,
        predecessors: Sequence[frozenset[int]],
        request_numbers: Iterator[int],
    ):
        """Makes the requests of the parts; called by `Executor`.

        `predecessors` has for each part the parts that must end before it starts. The requests of
        an executor share the counter `request_numbers`; lower numbers have priority.
        """
        self.spans: list[Span] = []  # of the parts in the last inference, as they ended
        self.error: BaseException | None = None  # of the last inference, until it is raised
        self._split = split
        self._workers = workers
        self._request_numbers = request_numbers
        self._infer_requests = [model.create_infer_request() for model in compiled]
        self._predecessors = predecessors
        self._successors: list[list[int]] = [[] for _ in split.parts]
        for number, part_predecessors in enumerate(predecessors):
            for predecessor in part_predecessors:
                self._successors[predecessor].append(number)

        # Memory of fixed size is shared once, here; the rest is handed over in every inference.
        self._dynamic_links: list[list[_Link]] = [[] for _ in split.parts]
        senders = {
            tensor: (number, output)
            for number, part in enumerate(split.parts)
            for output, tensor in enumerate(part.sent_tensors)
        }
        for reader, part in enumerate(split.parts):
            for input_number, tensor in enumerate(part.inputs):
                if tensor not in senders:
                    continue
                sender, output = senders[tensor]
                link = _Link(output, reader, input_number)
                if compiled[sender].outputs[output].get_partial_shape().is_static:
                    self._hand_over(sender, [link])
                else:
                    self._dynamic_links[sender].append(link)

        # The state of the inference that is under way.
        self._lock = threading.Lock()  # guards the counts of what is left
        self._num_pending_predecessors: list[int] = []
        self._num_pending_parts = 0
        self._number = 0
        self._end_callback: Callable[[], object] = lambda: None

    def infer(self) -> None:
        """Runs the model on the inputs that are set, and waits; a RuntimeError if that fails."""
        has_ended = threading.Semaphore(0)
        self.start(next(self._request_numbers), has_ended.release)
        has_ended.acquire()
        _raise_first_error([self])

    def start(self, number: int, end_callback: Callable[[], object]) -> None:
        """Starts an inference; devices run parts of inferences with lower numbers first.

        `end_callback` is called on a device's thread when the inference has ended or failed.
        """
        self._number, self._end_callback = number, end_callback
        self._num_pending_predecessors = [len(parts) for parts in self._predecessors]
        self._num_pending_parts = len(self._split.parts)
        self.spans.clear()
        self._workers.begin_inference()
        for part, part_predecessors in enumerate(self._predecessors):
            if not part_predecessors:
                self._submit(part)

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value."""
        for infer_request in self._infer_requests:
            infer_request.reset_state()

    def query_state(self) -> list[Any]:  # of `VariableState`, which OpenVINO does not export
        """Returns the variables of the model."""
        return [state for request in self._infer_requests for state in request.query_state()]

    def set_input_tensor(self, index: int, tensor: ov.Tensor) -> None:
        """Sets an input of the model wherever a part reads it; its memory is shared, not copied."""
        for part, infer_request in zip(self._split.parts, self._infer_requests, strict=True):
            for port, (name, _) in enumerate(part.inputs):
                if self._split.input_index.get(name) == index:
                    infer_request.set_input_tensor(port, tensor)

    @property
    def output_tensors(self) -> list[ov.Tensor]:
        """The model's outputs, in order, valid until the next inference."""
        tensors = {}
        for part, infer_request in zip(self._split.parts, self._infer_requests, strict=True):
            for port, index in enumerate(part.model_outputs, start=len(part.sent_tensors)):
                tensors[index] = infer_request.get_output_tensor(port)
        return [tensors[index] for index in sorted(tensors)]

    def _submit(self, part: int) -> None:
        device = self._split.parts[part].device
        self._workers.submit(device, (self._number, part), lambda: self._run(part))

    def _run(self, part: int) -> None:
        """Runs a part, on its device's thread, and submits the parts that waited only for it."""
        begin_s = time.perf_counter()
        try:
            if self.error is None:  # after an error the other parts are only counted down
                self._infer_requests[part].infer()
                self._hand_over(part, self._dynamic_links[part])
        except BaseException as error:  # raised where the caller waits
            self.error = error
        span = Span(part, begin_s, time.perf_counter())
        with self._lock:
            self.spans.append(span)
            ready_parts = []
            for successor in self._successors[part]:
                self._num_pending_predecessors[successor] -= 1
                if self._num_pending_predecessors[successor] == 0:
                    ready_parts.append(successor)
            self._num_pending_parts -= 1
            has_ended = self._num_pending_parts == 0
        for ready_part in ready_parts:
            self._submit(ready_part)
        if has_ended:
            self._workers.end_inference()
            self._end_callback()

    def _hand_over(self, sender: int, links: Sequence[_Link]) -> None:
        """Lets other parts read the sender's output memory as their inputs."""
        for link in links:
            tensor = self._infer_requests[sender].get_output_tensor(link.output)
            self._infer_requests[link.reader].set_input_tensor(link.input, tensor)


def _raise_first_error(requests: Sequence[InferRequest]) -> None:
    """Raises the first request's error, if any has one, and clears the errors of all."""
    errors = [request.error for request in requests if request.error is not None]
    for request in requests:
        request.error = None
    if errors:
        raise errors[0]
