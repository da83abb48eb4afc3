"""Several processes that learn as one, each on a host with accelerators of its own.

Process 0 runs the task: it alone reads files, measures on devices, prints and writes. The others
follow (`experiments.distributed.follower`): where process 0 learns it tells them on what, and
before every step what it alone knows, such as measured latencies and that the time is over. All
then run the same program of JAX on the devices of all hosts. Of messages JAX's coordination service
takes care, which ends every process when one is lost, so that none waits for ever.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import flax.serialization
import jax
from jax._src import distributed  # the service's messages have no public name

from placement.errors import UserError
from placement.types import CostModel, OpGraph, Problem

_LOST_S = 30  # a process that has been silent for so long is lost
_WAIT_MS = 1000  # between two looks for a Ctrl-C
_numbers = itertools.count()


class Stopped(Exception):
    """Process 0 has done with what was being followed."""


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
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=_LOST_S,
            coordinator_bind_address=coordinator,
        )
        jax.devices()  # all processes tell one another of theirs, each when it first asks
    except RuntimeError as error:
        raise OSError(f"cannot join {num_processes} processes at {coordinator}: {error}") from error


def tell(value: Any) -> Any:
    """Tells the other processes, where there are any, and returns what was told.

    Args:
      value: of dictionaries, lists, strings, numbers and arrays.
    """
    _send({"value": value})
    return value


@contextlib.contextmanager
def leading(kind: str, what: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Has the others do within it what `experiments.distributed.follower` has under this name.

    Args:
      kind: the name.
      what: makes what they are told of it; not called where there are no others.
    """
    if distributed.global_state.client is not None:
        tell({"kind": kind, **what()})
    try:
        yield
    finally:
        dismiss()


def dismiss() -> None:
    """Tells the others that what they follow is over: what they do, or if it is nothing, all."""
    _send({})


def hear() -> Any:
    """What process 0 tells next.

    Raises:
      Stopped: that it has done.
    """
    client: Any = distributed.global_state.client
    key = _key()
    while True:
        try:
            data = client.blocking_key_value_get_bytes(key, _WAIT_MS)
            break
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise OSError("process 0 is lost") from error
    message = flax.serialization.msgpack_restore(data)
    if "value" not in message:
        raise Stopped
    return message["value"]


def packed(problem: Problem) -> dict[str, Any]:
    """A problem as something to tell."""
    graph = {field.name: getattr(problem.graph, field.name) for field in _FIELDS}
    graph |= {name: list(graph[name]) for name in ("op_names", "op_types")}
    graph["output_shapes"] = [list(shape) for shape in problem.graph.output_shapes]
    costs = {name: jax.device_get(leaf) for name, leaf in problem.costs._asdict().items()}
    return {
        "graph": graph,
        "costs": costs,
        "objective": problem.objective,
        "devices": list(problem.devices),
    }


def unpacked(told: dict[str, Any]) -> Problem:
    """The problem that was told."""
    graph = dict(told["graph"])
    graph |= {name: tuple(graph[name]) for name in ("op_names", "op_types")}
    graph["output_shapes"] = tuple(tuple(shape) for shape in graph["output_shapes"])
    costs = CostModel(**told["costs"])
    return Problem(OpGraph(**graph), costs, told["objective"], tuple(told["devices"]))


_FIELDS = dataclasses.fields(OpGraph)


def _send(message: dict[str, Any]) -> None:
    client = distributed.global_state.client
    if client is not None:
        client.key_value_set_bytes(_key(), flax.serialization.msgpack_serialize(message))


def _key() -> str:
    return f"placement/{next(_numbers)}"
