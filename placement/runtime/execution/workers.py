"""Worker threads of devices: one per device, bound to the device's core if it has one."""

import contextlib
import ctypes
import heapq
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import cast

from placement.errors import UserError
from placement.runtime import processors
from placement.runtime.devices import Device

_STOP_PRIORITY = (float("inf"), -1)  # after every part of every request

# Priority, sequence number, and the function to call; None ends the thread.
_Job = tuple[tuple[float, int], int, Callable[[], None] | None]


def join(thread: threading.Thread) -> None:
    """Waits until a thread has ended, on Linux with the destructors of its thread-local data.

    Before Python 3.13, `Thread.join` may return while the system's thread still runs those of
    OpenVINO, which compiled models share.
    """
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(1e-4)


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
        # A finaliser may put into a SimpleQueue even if it interrupted a call of that very queue.
        self._queues: dict[str, queue.SimpleQueue[_Job]] = {}
        self._signals: dict[str, _SpinSignal] = {}  # of the threads that spin
        self._cores: dict[str, int] = {}  # of the threads that are bound
        self._sequence_numbers = itertools.count()
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
            arrivals: queue.SimpleQueue[_Job] = queue.SimpleQueue()
            thread = threading.Thread(
                target=self._work, args=(name, arrivals), name=name, daemon=True
            )
            thread.start()
            self._threads[name], self._queues[name] = thread, arrivals
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

        Jobs of equal priority run in the order of their arrival. A job must not raise.
        """
        self._queues[device].put((priority, next(self._sequence_numbers), job))
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
            join(thread)
        for entries in (self._threads, self._queues, self._signals, self._cores):
            entries.clear()

    def _work(self, name: str, arrivals: "queue.SimpleQueue[_Job]") -> None:
        """Runs the jobs of a device's thread until one is None."""
        jobs: list[_Job] = []  # a heap
        while True:
            with contextlib.suppress(queue.Empty):
                while True:
                    heapq.heappush(jobs, arrivals.get_nowait())
            if jobs:
                job = heapq.heappop(jobs)[-1]
                if job is None:
                    return
                job()
                del job  # it refers to requests, which should be freed while the thread waits
            elif self._num_active and (signal := self._signals.get(name)) is not None:
                signal.wait()
            else:
                jobs.append(arrivals.get())


class _SpinSignal:
    """A signal for one thread, which waits for it spinning and without Python's lock.

    It is a POSIX spin lock that is locked unless a `post` has not been waited for. POSIX leaves
    open what unlocking by another thread does; in the C libraries of Linux it stores a value.
    """

    def __init__(self) -> None:
        # Loaded here, because Windows and macOS have no spin locks. There no thread is bound to a
        # core, and so none spins. Calls through `CDLL` release Python's lock, through `PyDLL` not.
        self._spin_lock = ctypes.CDLL(None).pthread_spin_lock
        self._spin_unlock = ctypes.PyDLL(None).pthread_spin_unlock
        lock = ctypes.c_int()
        self._address = ctypes.byref(lock)
        ctypes.CDLL(None).pthread_spin_init(self._address, 0)
        self._spin_lock(self._address)

    def wait(self) -> None:
        """Returns after the next `post`, or immediately if one has not been waited for."""
        self._spin_lock(self._address)

    def post(self) -> None:
        """Wakes the waiting thread; several posts before a wait count as one."""
        self._spin_unlock(self._address)
