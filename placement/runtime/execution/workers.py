"""Worker threads of devices: one per device, bound to the device's core if it has one."""

import contextlib
import ctypes
import heapq
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterable
from typing import cast

from placement.errors import UserError
from placement.runtime import processors
from placement.runtime.devices import Device

_STOP_PRIORITY = (float("inf"), -1)  # after every part of every request

# Priority, sequence number, and the function to call; None ends the thread.
_Job = tuple[tuple[float, int], int, Callable[[], None] | None]


class Workers:
    """Worker threads, one per device, which executors share.

    While an inference is under way, a thread that is bound to a core spins until its next part
    arrives: a sleeping core takes 50 us or more to wake, as long as a small part takes to run.
    Threads that share a core do not spin.
    """

    def __init__(self) -> None:
        """Makes no threads; `start` starts them, and `close` ends them."""
        # All have an entry for each device, by its name.
        self._threads: dict[str, threading.Thread] = {}
        self._queues: dict[str, _JobQueue] = {}
        self._signals: dict[str, _SpinSignal] = {}  # of the threads that spin
        self._cores: dict[str, int] = {}  # of the threads that are bound
        self._num_active = 0  # inferences that are under way
        self._lock = threading.Lock()  # guards _num_active

    @property
    def thread_ids(self) -> dict[str, int]:
        """The system's number of each device's thread, by the device's name."""
        return {name: cast(int, thread.native_id) for name, thread in self._threads.items()}

    def start(self, devices: Iterable[Device]) -> None:
        """Starts the threads of those devices that have none.

        Raises:
          UserError: a device has a core that this process may not use.
          RuntimeError: the system provides no thread.
        """
        for device in devices:
            name, core = device.name, device.core
            if name in self._threads:
                continue
            if core is not None and core not in processors.list_allowed_cores():
                raise UserError(
                    f"{name} needs core {core}, which this process may not use; resolve the "
                    "devices in the process that runs them"
                )
            jobs = _JobQueue()
            thread = threading.Thread(target=self._work, args=(name, jobs), name=name, daemon=True)
            thread.start()
            self._threads[name], self._queues[name] = thread, jobs
            if core is not None:
                os.sched_setaffinity(self.thread_ids[name], {core})
                sharing = [other for other in self._cores if self._cores[other] == core]
                self._cores[name] = core
                if not sharing:
                    self._signals[name] = _SpinSignal()
                elif (signal := self._signals.pop(sharing[0], None)) is not None:
                    signal.post()  # so that the first thread of this core stops spinning

    def submit(
        self, device: str, priority: tuple[float, int], job: Callable[[], None] | None
    ) -> None:
        """Lets a device's thread call `job`, lower priorities first; None ends the thread.

        A job must not raise.
        """
        self._queues[device].add(priority, job)
        if (signal := self._signals.get(device)) is not None:
            signal.post()

    def begin_inference(self) -> None:
        """Counts an inference as under way, so that threads spin."""
        with self._lock:
            self._num_active += 1

    def end_inference(self) -> None:
        """Ends an inference that `begin_inference` has counted."""
        with self._lock:
            self._num_active -= 1
        for signal in list(self._signals.values()):
            signal.post()

    def stop(self) -> None:
        """Ends the threads once their queues are empty, and returns immediately.

        This takes no lock, so that a finaliser may call it at any point of its thread.
        """
        for name in list(self._queues):
            self.submit(name, _STOP_PRIORITY, None)

    def close(self) -> None:
        """Ends the threads once their queues are empty, and waits; `start` starts new ones."""
        self.stop()
        for thread in self._threads.values():
            thread.join()
        for entries in (self._threads, self._queues, self._signals, self._cores):
            entries.clear()

    def _work(self, name: str, jobs: "_JobQueue") -> None:
        """Runs the jobs of a thread until one is None."""
        while (job := self._next_job(name, jobs)) is not None:
            job()
            del job  # it refers to requests, which should be freed while the thread waits

    def _next_job(self, name: str, jobs: "_JobQueue") -> Callable[[], None] | None:
        """Returns the next job; waits for it spinning if an inference is under way."""
        while self._num_active and (signal := self._signals.get(name)) is not None:
            with contextlib.suppress(queue.Empty):
                return jobs.take(is_waiting=False)
            signal.wait()
        return jobs.take(is_waiting=True)


class _JobQueue:
    """A device's jobs, the lowest priority first; equal priorities in the order of arrival."""

    def __init__(self) -> None:
        # A finaliser may put into a SimpleQueue even if it interrupted a call of that very queue.
        self._arrivals: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._sequence_numbers = itertools.count()
        self._heap: list[_Job] = []  # used only by the device's thread

    def add(self, priority: tuple[float, int], job: Callable[[], None] | None) -> None:
        """Adds a job, from any thread."""
        self._arrivals.put((priority, next(self._sequence_numbers), job))

    def take(self, *, is_waiting: bool) -> Callable[[], None] | None:
        """Removes and returns the first job.

        Args:
          is_waiting: whether to wait for a job.

        Raises:
          queue.Empty: the queue is empty, and `is_waiting` is false.
        """
        if is_waiting and not self._heap:
            self._heap.append(self._arrivals.get())
        with contextlib.suppress(queue.Empty):
            while True:
                heapq.heappush(self._heap, self._arrivals.get_nowait())
        if not self._heap:
            raise queue.Empty
        return heapq.heappop(self._heap)[-1]


class _SpinSignal:
    """A signal for one thread, which waits for it spinning and without Python's lock.

    It is a POSIX semaphore. The waiting thread calls the C library's linear search `lfind` on an
    endless array, with `sem_trywait` as the comparison. `ctypes.CDLL` releases Python's lock during
    this call, and the search ends when `sem_trywait` returns 0 ('equal'): the semaphore was posted.
    """

    _num_elements = ctypes.byref(ctypes.c_size_t(2**62))
    _element_bytes = ctypes.c_size_t(0)  # so that every element is the semaphore itself
    _semaphore_bytes = 64  # a `sem_t` is not larger

    def __init__(self) -> None:
        # Loaded here, because Windows has no such library and macOS no such semaphores. There no
        # thread is bound to a core, and so none spins.
        self._libc, self._libc_holding_lock = ctypes.CDLL(None), ctypes.PyDLL(None)
        self._sem_trywait = ctypes.cast(self._libc.sem_trywait, ctypes.c_void_p)
        self._semaphore = ctypes.create_string_buffer(self._semaphore_bytes)
        self._libc_holding_lock.sem_init(self._semaphore, 0, 0)

    def wait(self) -> None:
        """Returns after the next `post`, or immediately if one has not been waited for."""
        semaphore = self._semaphore
        self._libc.lfind(
            semaphore, semaphore, self._num_elements, self._element_bytes, self._sem_trywait
        )
        while self._libc_holding_lock.sem_trywait(semaphore) == 0:  # forget any further posts
            pass

    def post(self) -> None:
        """Wakes the waiting thread; several posts before a wait count as one."""
        self._libc_holding_lock.sem_post(self._semaphore)
