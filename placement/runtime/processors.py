"""Processor cores and threads, on every operating system that OpenVINO supports.

Linux binds a thread to a core and says on which cores a thread may run. Windows tells the cores of
a process; macOS tells only their number. Without `CAN_BIND_THREADS` no device has a core of its
own, and the system chooses where its thread runs.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

# A core with less than this share of the largest capacity, or of the highest clock rate, is an
# efficiency core. The highest clock rates of performance cores differ by up to a tenth.
_PERFORMANCE_SHARE = 0.8

CAN_BIND_THREADS = hasattr(os, "sched_setaffinity")


def list_allowed_cores() -> list[int]:
    """Returns the cores that this process may use, ascending."""
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):
        return sorted(process.cpu_affinity())
    return list(range(psutil.cpu_count() or 1))


def find_core_groups(
    cores: Sequence[int], folder: Path = Path("/sys/devices")
) -> dict[str, list[int]]:
    """Returns the groups of cores that share a NUMA node or are of one kind.

    Linux lists the cores of each node in `system/node`, and those of each kind in `cpu_core` and
    `cpu_atom` on Intel's hybrid processors. On other processors the kinds follow from the capacity
    of each core (`cpu_capacity`), else from its highest clock rate.

    Args:
      cores: the cores that may be in a group, ascending.
      folder: the folder in which the system describes its devices.

    Returns:
      The cores of each group, ascending: 'NODE_0' and so on if there are several nodes, and
      'PERFORMANCE' and 'EFFICIENT' if there are both kinds. Empty if the system has no such groups
      or does not describe its cores.
    """
    nodes = {
        f"NODE_{path.parent.name.removeprefix('node')}": _read_core_list(path)
        for path in folder.glob("system/node/node*/cpulist")
    }
    kinds = {
        "PERFORMANCE": _read_core_list(folder / "cpu_core/cpus"),
        "EFFICIENT": _read_core_list(folder / "cpu_atom/cpus"),
    }
    if not all(kinds.values()):
        kinds = _compare_cores(cores, folder / "system/cpu")
    groups: dict[str, list[int]] = {}
    for division in (nodes, kinds):
        members = {name: [core for core in cores if core in division[name]] for name in division}
        members = {name: members[name] for name in members if members[name]}
        if len(members) > 1:
            groups |= dict(sorted(members.items(), key=lambda item: item[1]))
    return groups


def _compare_cores(cores: Sequence[int], folder: Path) -> dict[str, set[int]]:
    """Divides cores by their capacity, else by their highest clock rate; {} if neither is known."""
    for file in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        try:
            values = {core: int((folder / f"cpu{core}" / file).read_text()) for core in cores}
        except (OSError, ValueError):
            continue
        least = _PERFORMANCE_SHARE * max(values.values())
        fast_cores = {core for core, value in values.items() if value >= least}
        if len(fast_cores) < len(values):
            return {"PERFORMANCE": fast_cores, "EFFICIENT": values.keys() - fast_cores}
    return {}


def _read_core_list(path: Path) -> set[int]:
    """Reads a list of cores such as '0-3,8'; returns no cores if there is no such file."""
    try:
        text = path.read_text().strip()
    except OSError:
        return set()
    cores = set[int]()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def bind_thread(core: int, thread_id: int = 0) -> None:
    """Binds a thread to a core; only where `CAN_BIND_THREADS`.

    Args:
      core: the core.
      thread_id: the system's number of the thread; 0 for the calling one.
    """
    os.sched_setaffinity(thread_id, {core})


def list_thread_cores(thread_id: int) -> set[int]:
    """Returns the cores that a thread may use; only where `CAN_BIND_THREADS`.

    Args:
      thread_id: the system's number of the thread.
    """
    return os.sched_getaffinity(thread_id)


@contextlib.contextmanager
def filled_memory(byte: int) -> Iterator[None]:
    """Fills all memory that the block allocates with a byte; does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    perturb = -6  # M_PERTURB: the complement of the value fills new memory
    if mallopt is not None:
        mallopt(perturb, byte ^ 0xFF)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(perturb, 0)


def end_with_parent() -> None:
    """Makes Linux kill this process when its parent ends; elsewhere it does nothing."""
    if sys.platform == "linux":
        import signal

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
