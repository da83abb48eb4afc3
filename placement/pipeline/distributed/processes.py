"""Several processes that learn as one, each on a host with accelerators of its own.

Process 0 runs the task: it alone reads files, measures on devices, prints and writes. The others
follow (`placement.pipeline.distributed.follower`): where process 0 learns it broadcasts on what, and
before every step what it alone knows, such as measured latencies and that the time is over. All
then run the same program of JAX on the devices of all hosts. When a process is lost, JAX's
coordination service ends the others, so that none waits for ever.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import flax.serialization
import jax
import numpy as np
from jax.experimental import multihost_utils

from placement.errors import UserError
from placement.types import CostModel, OpGraph, Problem, SegmentCosts, TensorBytes

_LOST_S = 30  # a process that has been silent for so long is lost
_LONGEST_WAIT_S = 30 * 24 * 3600  # for process 0, while it solves or measures
_FIELDS = tuple(field.name for field in dataclasses.fields(OpGraph))
_NESTED = "output_shapes", "member_types"
_OPTIONAL = {"tensor_bytes": TensorBytes, "in_segments": SegmentCosts}


class Stopped(Exception):
    """Process 0 has done with what was being followed."""


class Lost(OSError):
    """Another process is lost."""


def join(coordinator: str, num_processes: int, process_id: int) -> None:
    """Waits for all processes; before anything else that uses JAX.

    Args:
      coordinator: 'HOST:PORT' of process 0, which listens there and nowhere else.
      num_processes: of all hosts.
      process_id: this one's number, from 0.

    Raises:
      UserError: a number that cannot be, or a malformed address: one line.
      OSError: not all of them came.
    """
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(
            f"coordinator={coordinator!r} is no address; give HOST:PORT of process 0, the same to "
            "all processes"
        )
    if not 0 <= process_id < num_processes:
        raise UserError(
            f"process_id={process_id} of num_processes={num_processes}; give each process another "
            "number from 0 on, below num_processes"
        )
    # Of CPUs alone: they give up what they wait for after half an hour by default.
    wait = f"--xla_cpu_collective_timeout_seconds={_LONGEST_WAIT_S}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {wait}"
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=_LOST_S,
            coordinator_bind_address=coordinator,
        )
        # Connects them: for that, unlike for what they do once connected, CPUs wait half a minute.
        multihost_utils.sync_global_devices("join")
    except RuntimeError as error:
        raise OSError(f"cannot join {num_processes} processes at {coordinator}: {error}") from error


def broadcast(value: Any = None) -> Any:
    """Returns what process 0 gives, in every process; all have to ask.

    Args:
      value: of dictionaries, lists, strings, numbers and arrays; of no matter where not process 0.

    Raises:
      Stopped: process 0 has stopped instead.
      Lost: a process is lost.
    """
    if not jax.distributed.is_initialized():
        return value
    data = _broadcast(flax.serialization.msgpack_serialize({"value": value}))
    if not data:
        raise Stopped
    return flax.serialization.msgpack_restore(data)["value"]


@contextlib.contextmanager
def leading(kind: str, job: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Has the others do within it what `placement.pipeline.distributed.follower` has under this name.

    Args:
      kind: the name.
      job: makes what is broadcast of it; not called where there are no others.
    """
    if jax.distributed.is_initialized():
        broadcast({"kind": kind, **job()})
    with stopping():
        yield


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Has the others stop at its end what they follow, or end if that is nothing."""
    reachable = jax.distributed.is_initialized()
    try:
        yield
    except (jax.errors.JaxRuntimeError, Lost):
        reachable = False  # the others are in a step still, or gone
        raise
    finally:
        if reachable:
            _broadcast(b"")


def packed(problem: Problem) -> dict[str, Any]:
    """Returns a problem as something to broadcast."""
    graph = {name: getattr(problem.graph, name) for name in _FIELDS}
    graph |= {name: list(graph[name]) for name in ("op_names", "op_types")}
    graph |= {name: list(map(list, graph[name])) for name in _NESTED}
    costs = jax.device_get(problem.costs)._asdict()
    costs |= {name: list(costs[name] or ()) for name in _OPTIONAL}
    return problem._asdict() | {"graph": graph, "costs": costs, "devices": list(problem.devices)}


def unpacked(job: dict[str, Any]) -> Problem:
    """Returns the problem that was broadcast."""
    graph = dict(job["graph"])
    graph |= {name: tuple(graph[name]) for name in ("op_names", "op_types")}
    graph |= {name: tuple(map(tuple, graph[name])) for name in _NESTED}
    optional = {
        name: make(*job["costs"][name]) if job["costs"][name] else None
        for name, make in _OPTIONAL.items()
    }
    costs = CostModel(**job["costs"] | optional)
    return Problem(OpGraph(**graph), costs, job["objective"], tuple(job["devices"]))


def _broadcast(data: bytes) -> bytes:
    """Returns process 0's bytes: first how many, since all have to give arrays of one shape."""
    first = jax.process_index() == 0
    try:
        size = multihost_utils.broadcast_one_to_all(np.int32(len(data)))
        array = np.frombuffer(data, np.uint8) if first else np.zeros(size, np.uint8)
        return multihost_utils.broadcast_one_to_all(array).tobytes() if size else b""
    except jax.errors.JaxRuntimeError as error:
        raise Lost(f"{'another process' if first else 'process 0'} is lost") from error
