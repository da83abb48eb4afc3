"""Runs a placement with its devices at the same time, which HETERO cannot.

Every device has a thread of its own, bound to the device's core where it has one, and a queue. A
part (`placement.runtime.split`) enters its device's queue when its last input is there; the device
takes the oldest request's first, and of one request the part that comes first in the split. A part
reads the very memory that another wrote, wherever its device can.

Inference is synchronous on the device's thread: OpenVINO's CPU plug-in then computes on that
thread alone (one thread, pinning off), so that the thread's core is the device's core.
"""

import collections
import contextlib
import ctypes
import functools
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.hetero import constant_names
from placement.runtime.split import PLAIN, Format, Part, Split, Stretch, Tensor, split, submodels

_CACHE_BYTES = 4 << 30  # of weights in compiled submodels, of which a device may keep two copies
_STOP = (float("inf"), -1)  # after every part of every request


class Span(NamedTuple):
    """When a part ran, on the clock of `time.perf_counter`."""

    part: int
    begin_s: float
    end_s: float


class Submodels:
    """Compiled submodels by content, so that similar placements of a model share them."""

    def __init__(self, core: ov.Core, model: ov.Model):
        """A cache of submodels of `model`, for devices that `core` knows."""
        self.compiled = 0  # how many were, since the beginning
        self.model = model
        self._core = core
        self._kept: collections.OrderedDict[tuple[object, ...], ov.CompiledModel]
        self._kept = collections.OrderedDict()
        self._bytes = {
            op.get_friendly_name(): op.get_byte_size()
            for op in model.get_ordered_ops()
            if op.get_type_name() == "Constant"
        }
        self._sizes: dict[tuple[object, ...], int] = {}
        self._constants = _constants_read(model)
        self._formats: dict[tuple[object, ...], dict[Tensor, Format]] = {}

    def compile(self, parts: Sequence[Part], devices: Sequence[Device]) -> list[ov.CompiledModel]:
        """A compiled model for each part; only those that are new are compiled."""
        by_name = {device.name: device for device in devices}
        formats = self._handed_over(parts, by_name)
        keys = [_content(part, by_name[part.device], formats) for part in parts]
        new = [i for i, key in enumerate(keys) if key not in self._kept]
        built = submodels(self.model, [parts[i] for i in new], formats)
        for i, model in zip(new, built, strict=True):
            device = by_name[parts[i].device]
            self._kept[keys[i]] = self._core.compile_model(
                model, device.name, dict(device.properties)
            )
            self._sizes[keys[i]] = self._weights(parts[i])
            self.compiled += 1
        found = [self._kept[key] for key in keys]
        for key in keys:
            self._kept.move_to_end(key)
        self._forget()
        return found

    def _handed_over(
        self, parts: Sequence[Part], devices: Mapping[str, Device]
    ) -> dict[Tensor, Format]:
        """The formats of tensors that only the CPU's plug-in writes and reads.

        Each is that in which its device keeps the tensor, so that handing it over converts nothing.
        """
        found: dict[Tensor, Format] = {}
        for part in parts:
            if part.hands_over and _on_cpu(part.device):
                kept = self._kept_formats(devices[part.device])
                found |= {t: kept[t] for t in part.hands_over if t in kept}
        for part in parts:
            if not _on_cpu(part.device):
                for tensor in part.reads:
                    found.pop(tensor, None)
        return found

    def _kept_formats(self, device: Device) -> dict[Tensor, Format]:
        """How a device keeps the tensors of the whole model."""
        key = device.name, _properties(device)
        if key not in self._formats:
            try:
                compiled = self._core.compile_model(
                    self.model, device.name, dict(device.properties)
                )
                found = _formats(self.model, compiled)
            except RuntimeError:  # an operation that it does not support, and will not be given
                found = {}
            self._formats[key] = found
        return self._formats[key]

    def _weights(self, part: Part) -> int:
        read = {name for op in part.ops for name in self._constants.get(op, ())}
        return sum(self._bytes[name] for name in read)

    def _forget(self) -> None:
        """Drops those that were used the longest ago while all together are too large."""
        while len(self._kept) > 1 and sum(self._sizes.values()) > _CACHE_BYTES:
            key, _ = self._kept.popitem(last=False)
            del self._sizes[key]


class Workers:
    """A thread for each device, bound to its core; executors share them.

    While an inference is under way a thread that is bound to a core waits for its next part
    spinning: a core that has gone to sleep takes 50 us and more to wake, which is what a small
    part takes to run.
    """

    def __init__(self) -> None:
        """Without threads: `start` starts them, and they end with `close`."""
        self.threads: dict[str, int] = {}  # device name: the system's number of its thread
        self._queues: dict[str, queue.PriorityQueue] = {}
        self._calls: dict[str, _Call] = {}
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._lock = threading.Lock()

    def start(self, devices: Iterable[Device]) -> None:
        """Starts the threads of those devices that have none.

        Raises:
          ValueError: a device has a core that this process may not use.
        """
        started = threading.Semaphore(0)
        for device in devices:
            if device.name in self._queues:
                continue
            if device.core is not None and device.core not in os.sched_getaffinity(0):
                raise ValueError(
                    f"{device.name} is to have core {device.core}, which this process may not use; "
                    "resolve the devices in the process that runs them"
                )
            self._queues[device.name] = queue.PriorityQueue()
            if device.core is not None:
                self._calls[device.name] = _Call()
            thread = threading.Thread(
                target=self._work, args=(device, started), name=device.name, daemon=True
            )
            self._threads.append(thread)
            thread.start()
            started.acquire()

    def put(self, device: str, priority: tuple[float, int], job: Callable[[], None] | None) -> None:
        """Lets a device's thread call `job`, those of lower `priority` first; None ends it."""
        self._queues[device].put((priority, job))
        if device in self._calls:
            self._calls[device].make()

    def begin(self) -> None:
        """An inference is under way."""
        with self._lock:
            self._under_way += 1

    def end(self) -> None:
        """It has ended."""
        with self._lock:
            self._under_way -= 1
        for call in self._calls.values():
            call.make()

    def close(self) -> None:
        """Ends the threads once their queues are empty; `start` starts new ones."""
        for name in self._queues:
            self.put(name, _STOP, None)
        for thread in self._threads:
            thread.join()
        for of_device in (self.threads, self._queues, self._calls):
            of_device.clear()
        self._threads.clear()

    def _work(self, device: Device, started: threading.Semaphore) -> None:
        if device.core is not None:
            os.sched_setaffinity(0, {device.core})
        self.threads[device.name] = threading.get_native_id()
        started.release()
        while (job := self._next(device.name)) is not None:
            job()
            del job  # which holds requests, until the next one else

    def _next(self, device: str) -> Callable[[], None] | None:
        waiting, call = self._queues[device], self._calls.get(device)
        while call is not None and self._under_way:
            with contextlib.suppress(queue.Empty):
                return waiting.get_nowait()[1]
            call.wait()
        return waiting.get()[1]


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
        stretches: Sequence[Stretch],
        devices: Sequence[Device],
        workers: Workers,
        *,
        lanes: int = 1,
    ):
        """Compiles what is new among the parts, and makes their requests.

        Args:
          submodels_: of the model.
          stretches: as `split.split` takes them; their order is the order of priority.
          devices: those that the stretches name, at least.
          workers: threads of devices that have none yet are started.
          lanes: how many requests may be under way at once (`stream`).

        Raises:
          ValueError: the stretches do not fit the model.
          RuntimeError: OpenVINO's own.
        """
        self.split = split(submodels_.model, stretches)
        used = {part.device for part in self.split.parts}
        self.devices = tuple(device for device in devices if device.name in used)
        self.workers = workers
        workers.start(self.devices)
        compiled = submodels_.compile(self.split.parts, devices)
        self._lanes = [_Lane(self.split, compiled, workers) for _ in range(lanes)]

    def infer(self) -> None:
        """Runs the model on the inputs that are set, and waits for its outputs."""
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
        """Runs `count` requests, as many at once as there are lanes; seconds from first to last.

        Those of a stateful model would mix their states.
        """
        free: queue.SimpleQueue[_Lane] = queue.SimpleQueue()
        for lane in self._lanes:
            free.put(lane)
        begin = time.perf_counter()
        for number in range(count):
            lane = free.get()
            if lane.failed:  # the others end what they are at
                free.put(lane)
                break
            lane.start(number, functools.partial(free.put, lane))
        for _ in self._lanes:
            free.get()
        seconds = time.perf_counter() - begin
        _raise_first(self._lanes)
        return seconds


class _Lane:
    """One request of every part, and the memory between them: runs one inference at a time."""

    def __init__(self, of: Split, compiled: Sequence[ov.CompiledModel], workers: Workers):
        self.requests = [model.create_infer_request() for model in compiled]
        self.spans: list[Span] = []
        self._split = of
        self._workers = workers
        self._lock = threading.Lock()
        self._readers: list[list[int]] = [[] for _ in of.parts]
        for number, part in enumerate(of.parts):
            for source in part.after:
                self._readers[source].append(number)
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
        self._missing = [len(part.after) for part in parts]
        self._left = len(parts)
        self.spans.clear()
        self._workers.begin()
        for i, part in enumerate(parts):
            if not part.after:
                self._put(i)

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
            for reader in self._readers[part]:
                self._missing[reader] -= 1
                if self._missing[reader] == 0:
                    ready.append(reader)
            self._left -= 1
            ended = self._left == 0
        for reader in ready:
            self._put(reader)
        if ended:
            self._workers.end()
            self._done()

    def _hand_over(self, source: int, links: Sequence["_Link"]) -> None:
        for link in links:
            tensor = self.requests[source].get_output_tensor(link.output)
            self.requests[link.reader].set_input_tensor(link.input, tensor)


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


def _content(part: Part, device: Device, formats: Mapping[Tensor, Format]) -> tuple[object, ...]:
    """What a compiled submodel depends on, given the model."""
    handed_over = tuple((tensor, formats.get(tensor)) for tensor in part.reads + part.hands_over)
    shape = part.ops, len(part.reads), handed_over, part.results
    return device.name, _properties(device), *shape


def _properties(device: Device) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in device.properties.items()))


def _on_cpu(device: str) -> bool:
    return "CPU" in device


def _formats(model: ov.Model, compiled: ov.CompiledModel) -> dict[Tensor, Format]:
    """How a compiled model keeps its floating-point tensors, where that is not as the model says.

    The plug-in names a layout by its axes, the slowest first: 'acdb' is NHWC. Blocked ones have
    other letters, and are no order of axes.
    """
    ops = {op.get_friendly_name(): op for op in model.get_ordered_ops()}
    found: dict[Tensor, Format] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = {key: str(value.astype(str)) for key, value in node.get_rt_info().items()}
        names = [n for n in info.get("originalLayersNames", "").split(",") if n in ops]
        layouts, types = (info.get(k, "").split(",") for k in ("outputLayouts", "outputPrecisions"))
        for index, (layout, element_type) in enumerate(zip(layouts, types, strict=False)):
            axes = tuple(ord(letter) - ord("a") for letter in layout)
            if sorted(axes) != list(range(len(axes))):
                continue
            order = axes if axes != tuple(sorted(axes)) else ()
            kept = Format(order, ov.Type.bf16 if element_type == "bf16" else None)
            for name in names:
                if index < ops[name].get_output_size() and _fits(ops[name].output(index), axes):
                    found[name, index] = kept
    return {tensor: kept for tensor, kept in found.items() if kept != PLAIN}


def _fits(output: ov.Output, axes: Sequence[int]) -> bool:
    rank = output.get_partial_shape().rank
    known = rank.is_static and rank.get_length() == len(axes)
    return known and output.get_element_type() == ov.Type.f32


def _constants_read(model: ov.Model) -> dict[str, set[str]]:
    """For each operation, the Constants that it reads, directly or through what they make."""
    constant = constant_names(model)
    behind: dict[str, set[str]] = {}
    for op in model.get_ordered_ops():
        name = op.get_friendly_name()
        found = {name} if op.get_type_name() == "Constant" else set()
        for source in op.input_values():
            other = source.get_node().get_friendly_name()
            if other in constant:
                found |= behind[other]
        behind[name] = found
    return behind
