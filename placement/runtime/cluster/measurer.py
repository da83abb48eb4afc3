"""Measures placements of one model on several hosts of the same hardware (`cluster`).

Each host has what this machine would have: a `LocalMeasurer`, with a process that owns the devices.
What is searched (`parts`) is cut into shares, a host each, and every share is measured beside the
baseline on its own host. So a ratio is always of two that ran there in the same rounds, and ratios
of several hosts stand for seconds of one baseline, as those of one host at several times do
(`evaluate`). What is concluded from, and what explains it (`ask`), is of one host throughout.

A share is late when it has taken longer than its rounds were to take and, for each of its
candidates, the time after which a host would end a compilation itself.
"""

import dataclasses
import operator
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import openvino as ov

from placement.runtime.cluster.hosts import Host
from placement.runtime.cluster.pool import Job, Pool
from placement.runtime.devices import Device
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.local import MAX_CHUNK_SIZE, LocalMeasurer
from placement.runtime.measurement.request import Answer, Failure, Measure, Measurement, Request
from placement.runtime.models import serialization
from placement.runtime.models.inputs import Inputs

_COSTS = "what costs are measured by"  # a job, in words


class ClusterMeasurer:
    """The `measurer.Measurer` of several hosts; a context manager that frees them."""

    def __init__(
        self,
        model: ov.Model,
        devices: Sequence[Device],
        hosts: Sequence[Host],
        *,
        inputs: Inputs | None = None,
        timeout_s: float = 60.0,
        say: Callable[[str], None] = lambda _: None,
    ):
        """Sends the model to the first host; to the others when they get something to do.

        Args:
          model: static, folded, with unique friendly names (`frontend.prepare`).
          devices: what placements are on, of the hosts.
          hosts: of the same hardware; the first measures whatever is of one host.
          inputs: that the model is run with; None for drawn ones (`inputs.find`).
          timeout_s: what one compilation, or one inference, may take.
          say: told of hosts that are lost or late.

        Raises:
          UserError: the hosts cannot run the model, or its inputs are impossible.
          ChildProcessError: no host is left.
        """
        self.devices = tuple(devices)
        self._timeout_s = timeout_s
        given = (*_serialised(model), self.devices, inputs, timeout_s)
        self._pool = Pool(hosts, _opened, given, say)
        try:
            self.fingerprint, self.computed = self._one(_properties)
        except BaseException:
            self._pool.close()
            raise

    def __enter__(self) -> "ClusterMeasurer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the hosts."""
        self._pool.close()

    @property
    def losses(self) -> int:
        """How often work was lost with a host or its process."""
        return self._pool.losses

    @property
    def answers(self) -> dict[str, int]:
        """Of each host that did anything, by name, how many requests it answered."""
        return dict(self._pool.answers)

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request on one host; if that is lost, all of it on another."""
        ((_, answer),) = self._pool.run([self._job(request)])
        return answer

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures on all hosts, as `LocalMeasurer.parts` does on one.

        Yields:
          Whatever is measured first; the first of all is in every part.

        Raises:
          ChildProcessError: a part was lost too often, or no host is left.
        """
        others = list(range(1, len(request.candidates)))
        size = -(-len(others) // max(1, self._pool.num_hosts()))
        size = max(1, min(size, MAX_CHUNK_SIZE))
        shares = [others[i : i + size] for i in range(0, len(others), size)] or [[]]
        fractions = [max(1, len(share)) / max(1, len(others)) for share in shares]
        jobs = [
            self._job(
                dataclasses.replace(
                    request,
                    candidates=[request.candidates[i] for i in (0, *share)],
                    time_limit_s=request.time_limit_s * fraction,
                    compile_s=request.compile_s * fraction,
                )
            )
            for share, fraction in zip(shares, fractions, strict=True)
        ]
        for number, outcomes in self._pool.run(jobs):
            yield dict(zip((0, *shares[number]), outcomes, strict=True))

    def conditions(self) -> dict[str, Conditions]:
        """Returns those of the first host to answer; none if no host is left."""
        try:
            return self._one(operator.methodcaller("conditions"))
        except ChildProcessError:  # what was measured counts without it
            return {}

    def _one(self, function: Callable[[LocalMeasurer], Any]) -> Any:
        """Returns what the first host that can be used answers."""
        ((_, answer),) = self._pool.run([Job(_COSTS, function)])
        return answer

    def _job(self, request: Request[Any]) -> Job:
        ask = operator.methodcaller("ask", request)
        if not isinstance(request, Measure):
            return Job(_COSTS, ask)
        count = len(request.candidates)
        placements = f"{count} placement{'s' if count > 1 else ''}"
        deadline_s = request.time_limit_s + count * self._timeout_s
        return Job(placements, ask, deadline_s=deadline_s)


def _serialised(model: ov.Model) -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        serialization.write(model, Path(folder))
        ir, weights = (Path(folder) / name for name in (serialization.XML, serialization.WEIGHTS))
        return ir.read_bytes(), weights.read_bytes()


def _opened(
    ir: bytes,
    weights: bytes,
    devices: tuple[Device, ...],
    inputs: Inputs | None,
    timeout_s: float,
) -> LocalMeasurer:
    model = ov.Core().read_model(ir, weights)
    return LocalMeasurer(model, devices, inputs=inputs, timeout_s=timeout_s)


def _properties(measurer: LocalMeasurer) -> tuple[str, frozenset[str]]:
    return measurer.fingerprint, measurer.computed
