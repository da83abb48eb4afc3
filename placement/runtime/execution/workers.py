"""Threads of devices: one for each, bound to the device's core where it has one, with a queue."""

import contextlib
import ctypes
import heapq
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterable

from placement.errors import UserError
from placement.runtime.devices import Device
from placement.runtime.errors import essence

_STOP = (float("inf"), -1)  # after every part of every request

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

    It is a semaphore, which any thread may post. Who waits tries it again and again in a linear
    search of the C library, whose comparison it is: 0, for equal, once it has been posted.
    """

    _libc, _with_lock = ctypes.CDLL(None), ctypes.PyDLL(None)
    _try = ctypes.cast(_libc.sem_trywait, ctypes.c_void_p)
    _endless = ctypes.byref(ctypes.c_size_t(2**62))  # elements
    _num_bytes = 64  # of a `sem_t`, at most

    def __init__(self) -> None:
        self._semaphore = ctypes.create_string_buffer(self._num_bytes)
        self._with_lock.sem_init(self._semaphore, 0, 0)

    def wait(self) -> None:
        """Returns after the next call, or at once after one that nobody waited for."""
        key = self._semaphore
        self._libc.lfind(key, key, self._endless, ctypes.c_size_t(0), self._try)
        while self._with_lock.sem_trywait(key) == 0:
            pass

    def make(self) -> None:
        """Calls; several before a wait are one."""
        self._with_lock.sem_post(self._semaphore)
