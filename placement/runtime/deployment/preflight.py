"""Checks and measurements of a placement on the target machine.

`find_devices` checks that the devices are present, and `measure` compares the placement with every
single device, in interleaved rounds with paired ratios (`placement.runtime.measurement.request`).
`placement.reporting.verdict` then chooses the row to deploy. At the end `verify` loads the written
folder as its users will load it.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment.artifact import CONCURRENT, HETERO, SINGLE, Artifact
from placement.runtime.deployment.network import Outputs, infer
from placement.runtime.devices import Device
from placement.runtime.execution import hetero
from placement.runtime.execution.split import Segment
from placement.runtime.measurement import baseline
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, Failure, Measurement
from placement.runtime.models import fingerprint, frontend, outputs
from placement.runtime.models.fingerprint import quote_names
from placement.runtime.models.inputs import Inputs

REFERENCE = "reference"  # the form of a row about a device that was not offered to the placement

_SCHEMA = {
    "method": str,
    "placement": {str: str},
    "segments": files.OptionalField(([[object]], None)),
    "provenance": {
        "devices": {str: {}},
        "memory": files.OptionalField({str: {"model_bytes": float}}),
        "model": files.OptionalField({"ops": {str: str}, "weights": {str: object}}),
    },
}


class PlacementFile(NamedTuple):
    """The content of a placement.json."""

    method: str
    affinity: Mapping[str, str]
    segments: tuple[Segment, ...]  # empty if the placement has no concurrent form
    devices: tuple[Device, ...]  # that the method could choose from; empty if none was present
    model: fingerprint.Fingerprint  # empty if the graph is not that of a model
    model_bytes: Mapping[str, float]  # memory that the whole model needs, by device
    divisions: Sequence[dict[str, Any]] = ()  # of `placement.pipeline.accuracy`

    @property
    def used_devices(self) -> frozenset[str]:
        """The devices that run an operation."""
        return frozenset(self.affinity.values())


class Row(NamedTuple):
    """One way to run the model."""

    method: str  # 'single:CPU', 'placement', 'placement, concurrent' or 'reference:' and a label
    form: str  # 'single', 'hetero', 'concurrent' or 'reference'
    candidate: Candidate  # whose affinity is None if one device runs the whole model
    outcome: Measurement | Failure

    @property
    def is_right(self) -> bool:
        """Whether it was measured, which only ways with right outputs are."""
        return isinstance(self.outcome, Measurement)

    def to_json(self) -> dict[str, Any]:
        """Returns the row as `summary.json` has it, with its form."""
        measured, ratio, status = None, None, "ok"
        if isinstance(self.outcome, Failure):
            status = f"{self.outcome.stage}: {self.outcome.cause}"
        else:
            measured = self.outcome
            ratio = None if math.isnan(measured.ratio.median) else measured.ratio
        return {
            "method": self.method,
            "form": self.form,
            "reference": self.form == REFERENCE,
            "measured_s": measured and measured.latency._asdict(),
            "versus_best_single_device": ratio and ratio.median,
            "versus_interval": ratio and (ratio.low, ratio.high),
            "output_error": measured and measured.output_error,
            "tolerance": measured and measured.tolerance,
            "status": status,
        }


def read(path: Path) -> PlacementFile:
    """Reads a placement.json; a UserError says that it is missing or is not a placement."""

    def parse(data: Mapping[str, Any]) -> PlacementFile:
        provenance = data["provenance"]
        records = provenance["devices"].values()
        is_present = all("properties" in record for record in records)
        return PlacementFile(
            data["method"],
            data["placement"],
            tuple(Segment(device, tuple(ops)) for device, ops in data.get("segments") or ()),
            tuple(map(devices.from_record, records)) if is_present else (),
            provenance.get("model", {"ops": {}, "weights": {}}),
            {name: needs["model_bytes"] for name, needs in provenance.get("memory", {}).items()},
            data.get("divisions", ()),
        )

    return files.read_json(path, _SCHEMA, parse, remedy="place the model with this workdir")


def find_devices(placed: PlacementFile, spec: str) -> tuple[Device, ...]:
    """Returns the devices to measure on: those that the placement could choose from, if present.

    They have the precisions and limits of memory that they had. `spec` is used, as in
    `devices.resolve`, for a placement on devices that were not present.

    Raises:
      UserError: a device that the placement uses is not present.
    """
    present = ov.Core().available_devices
    selected = [] if placed.devices else [*devices.resolve(spec)]
    for device in placed.devices:
        if device.host:
            selected.append(device)
        elif device.name in present:
            (local,) = devices.resolve(device.name)  # with the threads of this machine
            if device.precision == "f32" and local.precision != "f32":
                (local,) = devices.replace_with_f32([local], [local.name])
            selected.append(dataclasses.replace(local, capacity_bytes=device.capacity_bytes))
    if absent := sorted(placed.used_devices - {device.name for device in selected}):
        listed = ", ".join(dict.fromkeys([*(device.name for device in selected), *present]))
        raise UserError(
            f"the placement uses {quote_names(absent)}, not present: here are {listed}; place the "
            "model on devices of this machine"
        )
    return tuple(map(devices.adapt_to_process, selected))


def measure(placed: PlacementFile, measurer: Measurer, *, seconds: float) -> list[Row]:
    """Measures every single device, the forms of the placement, and the reference devices.

    A device with too little memory for the whole model is not measured alone. `seconds` is the time
    for timing, without compiling.

    Returns:
      Rows: single devices, the best first, then the placement's forms, then references.

    Raises:
      UserError: a form of the placement fails or computes wrong outputs, or everything else does.
    """
    singles: list[tuple[str, str, Candidate]] = []
    others: list[tuple[str, str, Candidate]] = []
    too_large: list[Row] = []
    for device in measurer.devices:
        single = (f"single:{device.name}", SINGLE, Candidate(None, (device,)))
        needed_bytes, capacity_bytes = placed.model_bytes.get(device.name), device.capacity_bytes
        if needed_bytes and capacity_bytes and needed_bytes > capacity_bytes:
            needs = f"needs {needed_bytes / 1e6:.1f} MB of {capacity_bytes / 1e6:.1f} MB"
            too_large.append(Row(*single, Failure("out of memory", needs)))
        else:
            singles.append(single)
    used = tuple(device for device in measurer.devices if device.name in placed.used_devices)
    if len(used) > 1:
        others.append(("placement", HETERO, Candidate(placed.affinity, used)))
        if placed.segments:  # both forms are deployed
            candidate = Candidate(placed.affinity, used, placed.segments)
            others.append(("placement, concurrent", CONCURRENT, candidate))
    for device in devices.list_references(measurer.devices):
        others.append((f"reference:{device.label}", REFERENCE, Candidate(None, (device,))))
    candidates = ([candidate for *_, candidate in ways] for ways in (singles, others))
    outcomes = baseline.measure(measurer, *candidates, seconds=seconds)
    rows = [Row(*way, outcome) for way, outcome in zip(singles + others, outcomes, strict=True)]
    rows, other_rows = rows[: len(singles)], rows[len(singles) :]
    rows.sort(key=lambda row: baseline.ratio_or_latency(row.outcome))
    rows += [*too_large, *other_rows]
    wrong = [row for row in reversed(other_rows) if row.form != REFERENCE and not row.is_right]
    if wrong or not any(row.is_right for row in rows):
        row = (wrong or rows)[0]
        raise UserError(
            f"the placement (found by {placed.method}) cannot be deployed here: {row.method}: "
            f"{row.to_json()['status']}; place the model on this machine with the same settings"
        )
    return rows


def verify(folder: Path, artifact: Artifact, inputs: Inputs) -> dict[str, str]:
    """Runs a written folder as its users will, and compares outputs with the plain f32 CPU's.

    Each sample is inferred twice: a state that is not carried over shows in the second time. A
    model with dynamic inputs runs a last sample of another shape, with the state of the others.

    Returns:
      The results of the checks by name, for people.

    Raises:
      UserError: the folder cannot be loaded, its outputs are wrong, or all outputs of the reference
        device are NaN.
    """

    def infer_plain(model: ov.Model, samples: Sequence[Sequence[np.ndarray]]) -> Outputs:
        compiled = hetero.compile_placement(ov.Core(), model, None, [devices.reference_device()])
        request = compiled.create_infer_request()
        return [a for sample in samples for a in infer(request, [ov.Tensor(x) for x in sample])]

    samples = [sample for sample in inputs.samples for _ in range(2)]
    expected = infer_plain(artifact.model, samples)
    nonempty = [array for array in expected if array.size]
    if nonempty and all(array.dtype.kind == "f" and np.isnan(array).all() for array in nonempty):
        raise UserError(
            "all outputs of the model are NaN, so they cannot be checked; pass a model without NaN "
            "in its weights, or inputs that it was made for: inputs='FILE.npz'"
        )
    checks, new_shape_inputs = {}, None
    if artifact.dynamic is not None:
        checks["another shape"] = "none found next to the placed one that the model accepts"
        shapes = []
        for placed, port in zip(artifact.model.inputs, artifact.dynamic.inputs, strict=True):
            shape = [*placed.get_shape()]
            for axis, dimension in enumerate(port.partial_shape):
                if dimension.is_dynamic:  # one larger than placed, or one smaller at the end
                    shape[axis] += -1 if shape[axis] == dimension.get_max_length() else 1
                    break
            shapes.append(tuple(shape))
        with contextlib.suppress(UserError, RuntimeError):
            static = artifact_lib.make_static(artifact.dynamic, tuple(shapes))
            example = frontend.example_inputs(static, seed=0)
            expected = infer_plain(artifact.dynamic, [*samples, example])
            new_shape_inputs = example
    quantised = outputs.is_quantised(artifact.model)
    tolerance = outputs.tolerance(artifact.devices, quantised=quantised, max_error=inputs.max_error)
    for concurrent in (None, False) if artifact.form == CONCURRENT else (None,):
        with artifact_lib.load(folder, concurrent=concurrent) as network:
            computed = [array for sample in samples for array in network.infer(sample)]
            if new_shape_inputs is not None:
                listed = ", ".join(str(list(array.shape)) for array in new_shape_inputs)
                try:
                    computed += network.infer(new_shape_inputs)
                    checks["another shape"] = f"{listed} has right outputs, too"
                except UserError as error:  # the model has other operations for this shape
                    checks["another shape"] = f"{listed} is refused: {error}"
        comparison = outputs.compare(expected[: len(computed)], computed)
        if not comparison.error <= tolerance:  # also refuses a NaN
            raise UserError(
                f"the deployed model computes wrong outputs in form {network.form!r} "
                f"({comparison.error:.3g} of their spread, over {tolerance:g}); nothing was written"
            )
        checks[f"outputs in form {network.form!r}"] = (
            f"off by {comparison.error:.2g} of their spread, up to {tolerance:g} allowed"
        )
        if comparison.nan_share:
            checks["NaN"] = (
                f"{comparison.nan_share:.3g} of the output values are NaN, as on the reference "
                "device; nothing else is known of them"
            )
    return checks
