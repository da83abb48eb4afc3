"""The `deploy` task: from placement.json to files that OpenVINO runs, checked here.

Writes DIR/deploy/ whole or not at all; what is in it is told by
`placement.runtime.deployment.artifact`. Where a plain device, such as the whole CPU, turns out to
be as fast as the placement, that device is what is deployed.

The folder is made beside the final one and exchanged with it in one step, so that a reader finds
the earlier deployment or the new one. Other files in it, such as notes of the user's, stay. After a
kill at any moment the next command removes or moves what was left beside it.
"""

import os
from pathlib import Path
from typing import Any

from rich.console import Console

from placement import files
from placement.errors import UserError
from placement.pipeline import loading, workdirs
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.pipeline.tasks import front
from placement.reporting import printable, runs, summaries, verdict, words
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
from placement.runtime.models.fingerprint import few
from placement.runtime.models.inputs import Inputs

FOLDER, NEW_FOLDER = "deploy", ".deploy.new"  # the latter while it is made

_RECORD, _WEIGHTS = "deploy.json", "model.bin"
# All files of a deployment, in the order in which `_replace` puts them in place one by one.
_NAMES = (
    *(_RECORD, "deploy.md", artifact_lib.IMPORT),
    *(artifact_lib.BLOB, _WEIGHTS, artifact_lib.MODEL),
)
_FILES = {
    artifact_lib.MODEL: "the model, its placement in the runtime information",
    _WEIGHTS: "its weights",
    artifact_lib.BLOB: "the same compiled, for these devices and this version of OpenVINO",
    artifact_lib.IMPORT: "what importing the compiled model needs",
    _RECORD: "this page, for programs",
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
    deployed = [f"{FOLDER}/{name}" for name in (artifact_lib.MODEL, _WEIGHTS)]
    workdirs.claim(workdir, display, [settings.graph], outputs=deployed)
    _check_folders(workdir)
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
    decision = _decided(placed, rows)
    artifact = _artifact(net, placed, found, decision)
    record = _record(settings, workdir, artifact, placed, rows, decision)
    record["checks"]["inputs"] = given.told
    with display.phase("writing the deployed folder, and loading it"):
        _write(workdir, artifact, record, given)
    if nan := record["checks"].get("NaN"):
        display.warn(nan)
    _print(record, decision, workdir, display.console)
    return record


def _decided(placed: Placed, rows: list[decision_lib.Row]) -> decision_lib.Decision:
    """Takes the verdict that every report takes, on what was measured just now.

    Raises:
      UserError: nothing works.
    """
    kept = decision_lib.deployable(placed, rows)
    decided = verdict.decide(
        [
            {
                "method": f"reference:{row.name}" if row.device else row.name,
                "measured_s": row.latency and row.latency._asdict(),
                "versus_best_single_device": row.ratio and row.ratio.median,
                "versus_interval": row.ratio and (row.ratio.low, row.ratio.high),
                "reference": row.device is not None,
                "status": row.status,
            }
            for row in kept
        ],
        decision_lib.preferred(placed),
    )
    assert decided.winner is not None
    reason = verdict.sentence(decided).replace("`", "")
    failed = [row for row in rows if row.form == artifact_lib.SINGLE and not row.latency]
    if failed:
        reason += f" Not right: {'; '.join(f'{row.name}: {row.status}' for row in failed)}."
    return decision_lib.decide(placed, rows, summaries.label(decided.winner.row), reason)


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


def _check_folders(workdir: Path) -> None:
    """Refuses a link, and a folder with files of a deployment's names that none has written."""
    for name in (FOLDER, NEW_FOLDER):
        files.refuse_link(workdir / name)
    final = workdir / FOLDER
    if final.exists() and not final.is_dir():
        raise UserError(f"{str(final)!r} is a file; move it, to make room for the folder")
    names = [name for name in _NAMES if (final / name).exists()]
    if names and _RECORD not in names:
        raise UserError(
            f"{str(final)!r} has {few(names)} but no {_RECORD}, so --task=deploy may not have "
            "written it; move it elsewhere"
        )


def _write(
    workdir: Path, artifact: artifact_lib.Artifact, record: dict[str, Any], given: Inputs
) -> None:
    """Writes a folder beside the final one, checks what is in it, and puts it in its place."""
    new, final = workdir / NEW_FOLDER, workdir / FOLDER
    _clear(new, final)
    new.mkdir()
    try:
        without_blob = artifact_lib.save(artifact, new)
        if without_blob:
            record["checks"]["compiled model"] = f"not written: {without_blob}"
        _check_outputs(new, artifact, record, given)
        left_out = (artifact_lib.BLOB, artifact_lib.IMPORT) if without_blob else ()
        record["files"] = {name: what for name, what in _FILES.items() if name not in left_out}
        runs.write_text(new / "deploy.md", deployment.markdown(printable.data(record)))
        runs.write_json(new / _RECORD, record)
        _replace(new, final)
    except RuntimeError as error:
        raise UserError(f"the model cannot be deployed: {essence(error)}") from error
    finally:
        _clear(new, final)


def _check_outputs(
    new: Path, artifact: artifact_lib.Artifact, record: dict[str, Any], given: Inputs
) -> None:
    """Runs what was written, and adds to the record how its outputs compare.

    Raises:
      UserError: they are wrong, or all NaN.
    """
    model, checks = artifact.model, record["checks"]
    allowed = outputs.tolerance(artifact.devices, quantised=outputs.is_quantised(model))
    for way, (error, nan_share) in preflight.compare_outputs(new, model, given.samples).items():
        if not error <= allowed:
            raise UserError(
                f"the deployed model computes wrong outputs after {way} ({error:.3g} of their "
                f"spread, over {allowed:g}); nothing was written"
            )
        checks[f"outputs after {way}"] = (
            f"off by {error:.2g} of their spread, up to {allowed:g} allowed"
        )
        if nan_share:
            checks["NaN"] = (
                f"{nan_share:.3g} of the output values are NaN, as on the reference device; "
                "nothing else is known of them"
            )


def _replace(new: Path, final: Path) -> None:
    """Puts a folder in the place of another, whose files `_clear` then sorts out."""
    if not final.exists():
        new.rename(final)
    elif not files.exchange(new, final):
        # Without the model, which comes last, a reader finds no deployment rather than a mixture.
        (final / artifact_lib.MODEL).unlink(missing_ok=True)
        for name in _NAMES:
            if (new / name).exists():
                os.replace(new / name, final / name)
            else:
                (final / name).unlink(missing_ok=True)


def _clear(new: Path, final: Path) -> None:
    """Removes the folder beside the final one.

    After an exchange it is the earlier deployment: files of the user's in it go to the final one.
    """
    files.remove_files(new, _NAMES)
    for path in new.iterdir() if new.exists() else ():
        if os.path.lexists(final / path.name):
            raise UserError(f"{str(path)!r} is in {str(final)!r} too; remove one of them")
        final.mkdir(exist_ok=True)
        path.rename(final / path.name)
    files.remove_files(new, ())


def _print(
    record: dict[str, Any], decision: decision_lib.Decision, workdir: Path, console: Console
) -> None:
    record = printable.data(record)
    words.show(deployment.rich_table(record), console)
    instead = " instead of the placement" if decision.fallback else ""
    lines = record["decision"], f"deployed{instead}: {record['deployed']}"
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    folder = str(workdir / FOLDER)
    console.print(f"load it: placement.load({folder!r})", markup=False, soft_wrap=True)
