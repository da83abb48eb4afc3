"""Measures placements of one model on several hosts of the same hardware (`cluster`).

Each host has what this machine would have: a `LocalMeasurer`, with a process that owns the devices.
What is searched (`parts`) is cut into shares, a host each, and every share is measured beside the
baseline on its own host. So a ratio is always of two that ran there in the same rounds, and ratios
of several hosts stand for seconds of one baseline, as those of one host at several times do
(`evaluate`). What is concluded from (`measure`), and what explains it, is of one host throughout.

A share is late when it has taken longer than its rounds were to take and, for each of its
candidates, the time after which a host would end a compilation itself.
"""

import math
import operator
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from placement.costs.tables import DeviceProfile
from placement.costs.transfers import TransferFit
from placement.runtime.cluster.hosts import Host
from placement.runtime.cluster.pool import Job, Pool
from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.local import MOST_AT_ONCE, Candidate, LocalMeasurer, Measurement
from placement.runtime.measurement.process import Failure
from placement.runtime.models.inputs import Inputs
from placement.runtime.models.outputs import Checked


class ClusterMeasurer:
    """A `boundary.Measurer` of several hosts; a context manager that frees them."""

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
            self.fingerprint, self.computed = self._one(_what)
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

    def measure(
        self,
        candidates: Sequence[Candidate],
        *,
        min_rounds: int,
        time_limit_s: float,
        accept_wrong: bool = False,
    ) -> list[Measurement | Failure]:
        """As `LocalMeasurer.measure`, on one host; if that is lost, all of it on another."""
        how = (min_rounds, time_limit_s, accept_wrong)
        ((_, outcomes),) = self._pool.run([self._job(candidates, how)])
        return outcomes

    def parts(
        self,
        candidates: Sequence[Candidate],
        *,
        min_rounds: int,
        time_limit_s: float,
        accept_wrong: bool = False,
    ) -> Iterator[dict[int, Measurement | Failure]]:
        """As `LocalMeasurer.parts`, on all hosts; yields whatever is measured first."""
        others = list(range(1, len(candidates)))
        size = -(-len(others) // max(1, self._pool.num_hosts()))
        size = max(1, min(size, MOST_AT_ONCE))
        shares = [others[i : i + size] for i in range(0, len(others), size)] or [[]]
        jobs = []
        for share in shares:
            seconds = time_limit_s * max(1, len(share)) / max(1, len(others))
            of_share = [candidates[i] for i in (0, *share)]
            jobs.append(self._job(of_share, (min_rounds, seconds, accept_wrong)))
        for number, outcomes in self._pool.run(jobs):
            yield dict(zip((0, *shares[number]), outcomes, strict=True))

    def profile(
        self,
        devices: Sequence[Device] | None = None,
        *,
        seconds: float = 6.0,
        limit_s: float = math.inf,
    ) -> tuple[DeviceProfile, ...]:
        """As `LocalMeasurer.profile`."""
        how = {"seconds": seconds, "limit_s": limit_s}
        return self._one(operator.methodcaller("profile", devices, **how))

    def output_errors(self, devices: Sequence[Device]) -> list[Checked]:
        """As `LocalMeasurer.output_errors`."""
        return self._one(operator.methodcaller("output_errors", devices))

    def transfers(self, *, limit_s: float = math.inf) -> tuple[TransferFit, ...]:
        """As `LocalMeasurer.transfers`."""
        return self._one(operator.methodcaller("transfers", limit_s=limit_s))

    def transfer_shapes(self) -> tuple[list[tuple[int, ...]], float]:
        """As `LocalMeasurer.transfer_shapes`."""
        return self._one(operator.methodcaller("transfer_shapes"))

    def timeline(
        self,
        segments: Sequence[Segment],
        *,
        inferences: int,
        limit_s: float = math.inf,
        shape: tuple[int, ...] | None = None,
    ) -> np.ndarray:
        """As `LocalMeasurer.timeline`."""
        how = {"inferences": inferences, "limit_s": limit_s, "shape": shape}
        return self._one(operator.methodcaller("timeline", segments, **how))

    def conditions(self) -> dict[str, Conditions]:
        """As those of `LocalMeasurer`, of the first host to answer; empty if none is left."""
        try:
            return self._one(operator.methodcaller("conditions"))
        except ChildProcessError:  # what was measured counts without it
            return {}

    def submodel_times(
        self, candidate: Candidate, *, inferences: int
    ) -> list[tuple[tuple[str, ...], float]]:
        """As `LocalMeasurer.submodel_times`."""
        return self._one(operator.methodcaller("submodel_times", candidate, inferences=inferences))

    def own_choice(self) -> dict[str, str]:
        """As `LocalMeasurer.own_choice`."""
        return self._one(operator.methodcaller("own_choice"))

    def _one(self, function: Callable[[LocalMeasurer], Any]) -> Any:
        """What the first host that can be used answers."""
        ((_, answer),) = self._pool.run([Job("what costs are measured by", function)])
        return answer

    def _job(self, candidates: Sequence[Candidate], how: tuple[int, float, bool]) -> Job:
        count = len(candidates)
        return Job(
            f"{count} placement{'s' if count > 1 else ''}",
            _measured,
            (candidates, *how),
            deadline_s=how[1] + count * self._timeout_s,
        )


def _serialised(model: ov.Model) -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        ir, weights = Path(folder) / "model.xml", Path(folder) / "model.bin"
        ov.serialize(model, ir, weights)
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


def _what(measurer: LocalMeasurer) -> tuple[str, frozenset[str]]:
    return measurer.fingerprint, measurer.computed


def _measured(
    measurer: LocalMeasurer,
    candidates: Sequence[Candidate],
    min_rounds: int,
    time_limit_s: float,
    accept_wrong: bool,
) -> list[Measurement | Failure]:
    return measurer.measure(
        candidates, min_rounds=min_rounds, time_limit_s=time_limit_s, accept_wrong=accept_wrong
    )
