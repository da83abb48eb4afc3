"""Several processes that train together, each on a host with its own accelerators.

Process 0 runs the task: only it reads files, measures on devices, prints and writes. The others
follow (`follower`): process 0 broadcasts each job, and before every step the data that only it has,
such as measured latencies and the end of the time limit. All processes then run the same JAX
program on the devices of all hosts. If a process is lost, JAX's coordination service ends the
others, so that none waits forever.
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
from placement.instance import Instance
from placement.types import CostModel, OpGraph, SegmentCosts, TensorBytes

_NESTED = "output_shapes", "member_types"
_OPTIONAL = {"tensor_bytes": TensorBytes, "segment_costs": SegmentCosts}


class Stopped(Exception):
    """Process 0 has ended the job that the others follow."""


class Lost(OSError):
    """Another process is lost."""


def join(coordinator: str, num_processes: int, process_id: int) -> None:
    """Waits for all processes; call it before anything else that uses JAX.

    Args:
      coordinator: 'HOST:PORT' of process 0, which listens only there.
      num_processes: on all hosts together.
      process_id: the number of this process, from 0.

    Raises:
      UserError: a number is out of range, or the address is malformed.
      OSError: not all processes joined.
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
    # Collectives on CPUs give up after half an hour by default; process 0 may solve for 30 days.
    flag = f"--xla_cpu_collective_timeout_seconds={30 * 24 * 3600}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=30,  # a process that is silent for longer is lost
            coordinator_bind_address=coordinator,
        )
        # The first collective connects the processes; on CPUs its timeout is only half a minute.
        multihost_utils.sync_global_devices("join")
    except RuntimeError as error:
        raise OSError(f"cannot join {num_processes} processes at {coordinator}: {error}") from error


def broadcast(value: Any = None) -> Any:
    """Returns the value of process 0 in every process; all processes must call it.

    Args:
      value: dictionaries, lists, strings, numbers and arrays; ignored except in process 0.

    Raises:
      Stopped: process 0 has ended the job instead.
      Lost: a process is lost.
    """
    if not jax.distributed.is_initialized():
        return value
    data = _broadcast(flax.serialization.msgpack_serialize({"value": value}))
    if not data:
        raise Stopped
    return flax.serialization.msgpack_restore(data)["value"]


@contextlib.contextmanager
def lead_followers(kind: str, job: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Makes the other processes run a job of `follower` of this kind until the block ends.

    `job` returns the data to broadcast; it is not called if there are no other processes.
    """
    if jax.distributed.is_initialized():
        broadcast({"kind": kind, **job()})
    with stopping():
        yield


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Ends the other processes' job when the block ends; without a job they exit."""
    reachable = jax.distributed.is_initialized()
    try:
        yield
    except (jax.errors.JaxRuntimeError, Lost):
        reachable = False  # the others are still in a step, or lost
        raise
    finally:
        if reachable:
            _broadcast(b"")


def pack_problem(problem: Instance) -> dict[str, Any]:
    """Converts a problem to data for `broadcast`."""
    fields = dataclasses.fields(problem.graph)
    graph = {field.name: getattr(problem.graph, field.name) for field in fields}
    graph |= {name: list(graph[name]) for name in ("op_names", "op_types")}
    graph |= {name: list(map(list, graph[name])) for name in _NESTED}
    costs = jax.device_get(problem.costs)._asdict()
    costs |= {name: list(costs[name] or ()) for name in _OPTIONAL}
    return problem._asdict() | {"graph": graph, "costs": costs, "devices": list(problem.devices)}


def unpack_problem(job: dict[str, Any]) -> Instance:
    """Converts broadcast data back to a problem."""
    graph = dict(job["graph"])
    graph |= {name: tuple(graph[name]) for name in ("op_names", "op_types")}
    graph |= {name: tuple(map(tuple, graph[name])) for name in _NESTED}
    optional = {
        name: cls(*job["costs"][name]) if job["costs"][name] else None
        for name, cls in _OPTIONAL.items()
    }
    costs = CostModel(**job["costs"] | optional)
    return Instance(OpGraph(**graph), costs, job["objective"], tuple(job["devices"]))


def _broadcast(data: bytes) -> bytes:
    """Returns process 0's bytes. Their number comes first, as all arrays need the same shape."""
    is_first = jax.process_index() == 0
    try:
        size = multihost_utils.broadcast_one_to_all(np.int32(len(data)))
        array = np.frombuffer(data, np.uint8) if is_first else np.zeros(size, np.uint8)
        return multihost_utils.broadcast_one_to_all(array).tobytes() if size else b""
    except jax.errors.JaxRuntimeError as error:
        raise Lost(f"{'another process' if is_first else 'process 0'} is lost") from error
