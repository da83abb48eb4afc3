"""The `deploy` task: from placement.json to files that OpenVINO runs, checked here.

Writes DIR/deploy/ whole or not at all; what is in it is told by
`placement.runtime.deployment.artifact`. Where a single device turns out to be as fast as the
placement, that device is what is deployed.
"""

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from placement.errors import UserError
from placement.pipeline import loading, workdirs
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import front
from placement.reporting import printable, runs, words
from placement.reporting.tables import deployment
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment import decision as decision_lib
from placement.runtime.deployment import preflight
from placement.runtime.deployment.preflight import Placed
from placement.runtime.devices import Device
from placement.runtime.errors import essence
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.models import fingerprint, outputs
from placement.runtime.models.inputs import Inputs

FOLDER = "deploy"

_FILES = {
    "model.xml": "the model, its placement in the runtime information",
    "model.bin": "its weights",
    artifact_lib.BLOB: "the same compiled, for these devices and this version of OpenVINO",
    artifact_lib.IMPORT: "what importing the compiled model needs",
    "deploy.json": "this page, for programs",
}


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Deploys the placement of a run directory.

    Returns:
      The record, as written to deploy.json.

    Raises:
      UserError: there is no placement, it does not fit the model or the devices, or it computes
        wrong outputs; in one line.
    """
    loading.check(settings)
    if settings.measure_on != "here":
        raise UserError(
            f"--task=deploy measures where it deploys; given measure_on={settings.measure_on!r}: "
            "leave it out"
        )
    placed = preflight.read(_placement(settings, workdir))
    workdirs.claim(workdir, display)
    net = loading.network(settings)
    if net.model is None:
        raise UserError(
            f"graph={settings.graph!r} is no model that a device could run; there is nothing to "
            "deploy"
        )
    preflight.check_model(placed, net.model, net.graph.name)
    found = preflight.find_devices(placed, settings.devices)
    used = [device for device in found if device.name in placed.used]
    preflight.check_support(devices.open_core(used), net.model, placed.affinity, used)
    given = loading.inputs(settings, net.model)
    with (
        display.phase("measuring") as phase,
        LocalMeasurer(net.model, found, inputs=given) as measurer,
        display.watching(measurer),
    ):
        rows = decision_lib.measure(placed, measurer, seconds=settings.measure_s, say=phase.note)
    decision = decision_lib.decide(placed, rows)
    artifact = _artifact(net, placed, found, decision)
    record = _record(settings, workdir, artifact, placed, rows, decision)
    record["checks"]["inputs"] = given.told
    with display.phase("writing what was decided, and loading it"):
        _write(workdir, artifact, record, given)
    _print(record, decision, workdir, display.console)
    return record


def _placement(settings: Settings, workdir: Path) -> Path:
    """The file of the placement, or of the point of a front."""
    if not settings.point:
        return workdir / runs.PLACEMENT
    file = workdir / front.FOLDER / front.point_file(settings.point)
    if not file.exists():
        known = sum(1 for _ in file.parent.glob(front.point_file("*")))
        valid = f"give 1 to {known}" if known else "run --task=front with this --workdir first"
        raise UserError(f"point={settings.point} is none of the front of {str(workdir)!r}; {valid}")
    return file


def _artifact(
    net: loading.Network, placed: Placed, found: tuple[Device, ...], decision: decision_lib.Decision
) -> artifact_lib.Artifact:
    """Makes of the placement what the decision leaves, on the devices that it then needs."""
    kept = decision.form != artifact_lib.SINGLE
    other = (decision.reference,) if decision.reference else ()
    needed = {decision.alone} if decision.alone and not other else set()
    needed |= placed.used if kept else set()
    notes = {
        "graph": net.graph.name,
        "method": placed.method,
        "fallback": "yes" if decision.fallback else "no",
        "fingerprint": fingerprint.digest(fingerprint.of(net.model)),
    }
    return artifact_lib.Artifact(
        model=net.model,
        affinity=placed.affinity if kept else {},
        segments=placed.segments if kept else (),
        devices=(*(device for device in found if device.name in needed), *other),
        form=decision.form,
        alone=decision.alone,
        decision=decision.reason,
        notes=notes,
    )


def _record(
    settings: Settings,
    workdir: Path,
    artifact: artifact_lib.Artifact,
    placed: Placed,
    rows: list[decision_lib.Row],
    decision: decision_lib.Decision,
) -> dict[str, Any]:
    other = decision.reference
    shown = {
        artifact_lib.SINGLE: other.label if other else f"single:{decision.alone}",
        artifact_lib.HETERO: "placement",
        artifact_lib.CONCURRENT: "placement, concurrent",
    }
    checks = {
        "devices": f"present: {', '.join(device.label for device in artifact.devices)}",
        "model": "the one that was placed"
        if placed.model is not None
        else "its operations have the names of those placed; their content was not recorded",
        "operations": "supported by the devices that the placement gives them to",
        "reference outputs": devices.reference_device().label,
    }
    return {
        **artifact.notes,
        "decision": decision.reason,
        "form": decision.form,
        "fallback": decision.fallback,
        "deployed": shown[decision.form],
        "openvino_alone": decision.alone or "HETERO",
        "seed": settings.seed,
        "rows": [
            {
                "name": row.name,
                "form": row.form,
                "measured_s": row.latency and row.latency._asdict(),
                "ratio": row.ratio and row.ratio._asdict(),
                "output_error": row.output_error,
                "tolerance": row.tolerance,
                "status": row.status,
            }
            for row in rows
        ],
        "checks": checks,
        "machine": devices.describe_machine(),
        "usage": _usage(workdir, artifact),
    }


def _usage(workdir: Path, artifact: artifact_lib.Artifact) -> str:
    names = ", ".join(
        repr(sorted(port.get_names())[0]) if port.get_names() else "..."
        for port in artifact.model.inputs
    )
    return (
        "import placement\n\n"
        f"with placement.load({str(workdir / FOLDER)!r}) as net:\n"
        f"    outputs = net.infer(inputs)  # arrays for {names}"
    )


def _write(
    workdir: Path, artifact: artifact_lib.Artifact, record: dict[str, Any], given: Inputs
) -> None:
    """Writes a folder beside the final one, checks what is in it, and puts it in its place."""
    beside, final = workdir / f".{FOLDER}.new", workdir / FOLDER
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        without_blob = artifact_lib.save(artifact, beside)
        if without_blob:
            record["checks"]["compiled model"] = f"not written: {without_blob}"
        model = artifact.model
        allowed = outputs.tolerance(artifact.devices, quantised=outputs.is_quantised(model))
        errors = preflight.artifact_errors(beside, model, given.samples)
        for way, error in errors.items():
            if not error <= allowed:
                raise UserError(
                    f"the deployed model computes wrong outputs after {way} ({error:.3g} of their "
                    f"spread, over {allowed:g}); nothing was written"
                )
            record["checks"][f"outputs after {way}"] = (
                f"off by {error:.2g} of their spread, up to {allowed:g} allowed"
            )
        left_out = (artifact_lib.BLOB, artifact_lib.IMPORT) if without_blob else ()
        record["files"] = {name: what for name, what in _FILES.items() if name not in left_out}
        runs.write_text(beside / "deploy.md", deployment.markdown(printable.data(record)))
        runs.write_json(beside / "deploy.json", record)
        _replace(beside, final)
    except RuntimeError as error:
        raise UserError(f"the model cannot be deployed: {essence(error)}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _replace(new: Path, final: Path) -> None:
    """Puts a folder in the place of another, which stays until then."""
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    new.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _print(
    record: dict[str, Any], decision: decision_lib.Decision, workdir: Path, console: Console
) -> None:
    record = printable.data(record)
    words.show(deployment.rich_table(record), console)
    word = "falls back to a single device" if decision.fallback else "deployed"
    console.print(f"{word}: {record['decision']}", markup=False, soft_wrap=True)
    deployed = next(row for row in record["rows"] if row["name"] == record["deployed"])
    for row in record["rows"]:
        faster = row["measured_s"] and row["measured_s"]["high"] < deployed["measured_s"]["low"]
        if row["form"] == decision_lib.REFERENCE and faster and _is_placed_on(row, record):
            console.print(
                f"faster still, but not among the devices: {row['name']}; to use it, place and "
                "deploy with --config.devices=CPU",
                markup=False,
                soft_wrap=True,
            )
    folder = str(workdir / FOLDER)
    console.print(f"load it: placement.load({folder!r})", markup=False, soft_wrap=True)


def _is_placed_on(row: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether devices=CPU is the CPU of a reference's row: it is in its own precision if that is
    right, else in f32.
    """
    (own,) = devices.resolve("CPU")
    right = {each["name"]: each["status"] == "ok" for each in record["rows"]}
    return own.label == row["name"] if right.get(own.label, False) else True
