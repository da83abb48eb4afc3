"""Measures placements of one model on several hosts of the same hardware.

Each host has a `LocalMeasurer`, with a process that owns the devices. A search's placements
(`measure_chunks`) are divided among the hosts, and each host measures its share beside the
baseline. So every ratio compares two latencies of the same rounds on one host. Ratios of several
hosts are comparable in the same way as ratios of one host at several times (`evaluate`). Everything
else (`ask`) is measured on one host: the final comparison, and what explains it.

A share is late if it takes longer than its rounds and, for each of its candidates, the time after
which the host itself would end a compilation.
"""

import contextlib
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

_COSTS_JOB = "the measurement of costs"  # named in messages


class ClusterMeasurer(contextlib.AbstractContextManager["ClusterMeasurer"]):
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
        """Sends the model to the first host; the others get it with their first job.

        Args:
          model: static, folded, with unique friendly names (`frontend.prepare`).
          devices: devices of the hosts, in the order of the indices of a placement.
          hosts: of the same hardware. The first one makes the measurements of a single host.
          inputs: the inputs that the model runs with; None draws them (`inputs.load_inputs`).
          timeout_s: limit on one compilation, or one inference.
          say: receives a line about each host that is lost or late.

        Raises:
          UserError: the hosts cannot run the model, or its inputs are impossible.
          ChildProcessError: no host is left.
        """
        self.devices = tuple(devices)
        self._timeout_s = timeout_s
        with tempfile.TemporaryDirectory() as folder:
            serialization.write_model(model, Path(folder))
            xml = (Path(folder) / serialization.XML).read_bytes()
            weights = (Path(folder) / serialization.WEIGHTS).read_bytes()
        arguments = (xml, weights, self.devices, inputs, timeout_s)
        self._pool = Pool(hosts, _open_measurer, arguments, say)
        try:
            self.fingerprint, self.computed_ops = self._run(Job(_COSTS_JOB, _read_properties))
        except BaseException:
            self._pool.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the hosts."""
        self._pool.close()

    @property
    def losses(self) -> int:
        """The number of times that work was lost with a host or its process."""
        return self._pool.losses

    @property
    def answers(self) -> dict[str, int]:
        """The number of requests that each host answered, by name."""
        return dict(self._pool.answers)

    def ask(self, request: Request[Answer]) -> Answer:
        """Answers a request on one host; if the host is lost, all of it on another one."""
        return self._run(self._job(request))

    def measure_chunks(self, request: Measure) -> Iterator[dict[int, Measurement | Failure]]:
        """Measures a share on each host and yields it when it is done; see `Measurer`."""
        indices = list(range(1, len(request.candidates)))
        size = -(-len(indices) // max(1, self._pool.num_hosts()))  # rounded up
        size = max(1, min(size, MAX_CHUNK_SIZE))
        shares = [indices[i : i + size] for i in range(0, len(indices), size)] or [[]]
        fractions = [max(1, len(share)) / max(1, len(indices)) for share in shares]
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
        """Returns the conditions on the first host to answer; none if no host is left."""
        try:
            return self._run(Job(_COSTS_JOB, operator.methodcaller("conditions")))
        except ChildProcessError:  # the measurements count without their conditions
            return {}

    def _run(self, job: Job) -> Any:
        ((_, answer),) = self._pool.run([job])
        return answer

    def _job(self, request: Request[Any]) -> Job:
        ask = operator.methodcaller("ask", request)
        if not isinstance(request, Measure):
            return Job(_COSTS_JOB, ask)
        count = len(request.candidates)
        description = f"{count} placement{'s' if count > 1 else ''}"
        deadline_s = request.time_limit_s + count * self._timeout_s
        return Job(description, ask, deadline_s=deadline_s)


def _open_measurer(
    xml: bytes,
    weights: bytes,
    devices: tuple[Device, ...],
    inputs: Inputs | None,
    timeout_s: float,
) -> LocalMeasurer:
    """Opens a measurer on a host."""
    model = ov.Core().read_model(xml, weights)
    return LocalMeasurer(model, devices, inputs=inputs, timeout_s=timeout_s)


def _read_properties(measurer: LocalMeasurer) -> tuple[str, frozenset[str]]:
    return measurer.fingerprint, measurer.computed_ops
