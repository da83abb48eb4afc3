"""The `deploy` task: from placement.json to files that OpenVINO runs, verified here.

Writes DIR/deploy/ completely or not at all; `placement.runtime.deployment.artifact` describes its
files. If a plain device, such as the whole CPU, is as fast as the placement, that device is
deployed instead.

The folder is written next to the final one and exchanged with it in one step, so that a reader
finds either the earlier deployment or the new one. Other files in it, such as the user's notes,
stay. After a kill at any moment the next command cleans up the folder next to the final one.
"""

import os
from pathlib import Path
from typing import Any

from placement import files
from placement.errors import UserError
from placement.pipeline import loading, workdirs
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.reporting import printable, runs, summaries, verdict
from placement.reporting.tables import deployment
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment import decision as decision_lib
from placement.runtime.deployment import preflight, shapes
from placement.runtime.deployment.preflight import PlacementFile
from placement.runtime.devices import Device
from placement.runtime.errors import summarise_error
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.models import fingerprint, outputs
from placement.runtime.models.fingerprint import quote_names
from placement.runtime.models.inputs import Inputs

FOLDER, NEW_FOLDER = "deploy", ".deploy.new"  # the latter while it is written

_RECORD, _WEIGHTS = "deploy.json", "model.bin"
# All files of a deployment, in the order in which `_replace` moves them one by one.
_FILE_NAMES = (
    *(_RECORD, "deploy.md", artifact_lib.AFFINITIES_FILE, artifact_lib.LOADER_FILE),
    *(artifact_lib.IMPORT_FILE, shapes.DYNAMIC_FILE, shapes.DYNAMIC_WEIGHTS),
    *(artifact_lib.BLOB_FILE, _WEIGHTS, artifact_lib.MODEL_FILE),
)
_DESCRIPTIONS = {
    artifact_lib.MODEL_FILE: "the model, its placement in the runtime information",
    _WEIGHTS: "its weights",
    artifact_lib.BLOB_FILE: "the same compiled, for these devices and this version of OpenVINO",
    artifact_lib.IMPORT_FILE: "what importing the compiled model needs",
    artifact_lib.AFFINITIES_FILE: "the device of each operation, for other programs",
    artifact_lib.LOADER_FILE: "a program in C++ that runs the model; it says how to compile it",
    shapes.DYNAMIC_FILE: "the model with its dynamic inputs, for other shapes",
    shapes.DYNAMIC_WEIGHTS: "its weights",
    _RECORD: "this page, for programs",
}


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Deploys the placement of a run directory.

    Raises:
      UserError: there is no placement, it does not fit the model or the devices, or its outputs are
        wrong.
    """
    loading.check_settings(settings)
    if settings.measure_on != "here":
        raise UserError(
            f"deploy measures on this machine: leave out measure_on={settings.measure_on!r}"
        )
    placement_file = workdir / runs.PLACEMENT
    placed = preflight.read(placement_file)
    models = artifact_lib.MODEL_FILE, _WEIGHTS, shapes.DYNAMIC_FILE, shapes.DYNAMIC_WEIGHTS
    model_files = [f"{FOLDER}/{name}" for name in models]
    workdirs.claim(workdir, display, [settings.graph], outputs=model_files)
    _check_folders(workdir)
    net = loading.load_network(settings)
    loading.require_model(net, settings.graph)
    preflight.check_model(placed, net.model, net.graph.name)
    all_devices = preflight.find_devices(placed, settings.devices)
    used = [device for device in all_devices if device.name in placed.used_devices]
    preflight.check_memory(placed, used)
    preflight.check_support(devices.open_core(used), net.model, placed.affinity, used)
    inputs = loading.inputs(settings, net.model)
    with (
        display.phase("measuring") as phase,
        LocalMeasurer(net.model, all_devices, inputs=inputs) as measurer,
    ):
        rows = decision_lib.measure(placed, measurer, seconds=settings.measure_s, say=phase.note)
    decision = _decide(placed, rows)
    artifact = _make_artifact(net, placed, all_devices, decision)
    artifact = artifact._replace(dynamic=loading.load_dynamic(settings))
    record = _make_record(settings, workdir, artifact, placed, rows, decision)
    record["checks"]["inputs"] = inputs.description
    record["divisions"] = runs.read_divisions(placement_file)
    if decision.form == artifact_lib.SINGLE:  # the operations run there with all others
        for division in record["divisions"]:
            for culprit in division["culprits"]:
                culprit["run_on"] = [decision.single_device]
    with display.phase("writing the deployed folder, and loading it"):
        _write(workdir, artifact, record, inputs)
    if nan := record["checks"].get("NaN"):
        display.warn(nan)
    shown = printable.data(record)
    display.console.print(deployment.grid(shown))
    instead = " instead of the placement" if decision.is_fallback else ""
    for line in (
        shown["decision"],
        f"deployed{instead}: {shown['deployed']}",
        f"load it: placement.load({str(workdir / FOLDER)!r})",
    ):
        display.console.print(line, markup=False, soft_wrap=True)
    return record


def _decide(placed: PlacementFile, rows: list[decision_lib.Row]) -> decision_lib.Decision:
    """Decides what to deploy from the new measurements, with the verdict that reports use.

    Raises:
      UserError: no form works.
    """
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
            for row in decision_lib.deployable_rows(placed, rows)
        ],
        decision_lib.preferred_row(placed),
    )
    assert decided.winner is not None
    reason = verdict.sentence(decided).replace("`", "")
    failed = [row for row in rows if row.form == artifact_lib.SINGLE and not row.latency]
    if failed:
        reason += f" Not right: {'; '.join(f'{row.name}: {row.status}' for row in failed)}."
    return decision_lib.decide(placed, rows, summaries.label(decided.winner.row), reason)


def _make_artifact(
    net: loading.Network,
    placed: PlacementFile,
    all_devices: tuple[Device, ...],
    decision: decision_lib.Decision,
) -> artifact_lib.Artifact:
    """Makes the artifact of the decision, with only those devices that it needs."""
    has_placement = decision.form != artifact_lib.SINGLE
    reference = (decision.reference,) if decision.reference else ()
    required = {decision.single_device} if decision.single_device and not reference else set()
    required |= placed.used_devices if has_placement else set()
    return artifact_lib.Artifact(
        model=net.model,
        affinity=placed.affinity if has_placement else {},
        segments=placed.segments if has_placement else (),
        devices=(*(device for device in all_devices if device.name in required), *reference),
        form=decision.form,
        single_device=decision.single_device,
        decision=decision.reason,
        notes={
            "graph": net.graph.name,
            "method": placed.method,
            "fallback": "yes" if decision.is_fallback else "no",
            "fingerprint": fingerprint.digest(fingerprint.compute_fingerprint(net.model)),
        },
    )


def _make_record(
    settings: Settings,
    workdir: Path,
    artifact: artifact_lib.Artifact,
    placed: PlacementFile,
    rows: list[decision_lib.Row],
    decision: decision_lib.Decision,
) -> dict[str, Any]:
    reference = decision.reference
    form_names = {
        artifact_lib.SINGLE: reference.label if reference else f"single:{decision.single_device}",
        artifact_lib.HETERO: "placement",
        artifact_lib.CONCURRENT: "placement, concurrent",
    }
    input_names = ", ".join(
        repr(sorted(port.get_names())[0]) if port.get_names() else "..."
        for port in artifact.model.inputs
    )
    return {
        **artifact.notes,
        "decision": decision.reason,
        "form": decision.form,
        "fallback": decision.is_fallback,
        "deployed": form_names[decision.form],
        "openvino_alone": decision.single_device or "placement",
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
        "checks": {
            "devices": f"present: {', '.join(device.label for device in artifact.devices)}",
            "model": "the one that was placed"
            if placed.model is not None
            else "its operations have the names of those placed; their content was not recorded",
            "operations": "supported by the devices that the placement gives them to",
            "reference outputs": devices.reference_device().label,
        },
        "machine": devices.describe_machine(),
        "usage": (
            "import placement\n\n"
            f"with placement.load({str(workdir / FOLDER)!r}) as net:\n"
            f"    outputs = net.infer(inputs)  # arrays for {input_names}"
        ),
    }


def _check_folders(workdir: Path) -> None:
    """Refuses a link, and a folder with a deployment's file names but without its record."""
    for name in (FOLDER, NEW_FOLDER):
        files.refuse_link(workdir / name)
    final = workdir / FOLDER
    if final.exists() and not final.is_dir():
        raise UserError(f"{str(final)!r} is a file; move it, to make room for the folder")
    names = [name for name in _FILE_NAMES if (final / name).exists()]
    if names and _RECORD not in names:
        raise UserError(
            f"{str(final)!r} has {quote_names(names)} but no {_RECORD}, so this "
            "program may not have written it; move it elsewhere"
        )


def _write(
    workdir: Path, artifact: artifact_lib.Artifact, record: dict[str, Any], inputs: Inputs
) -> None:
    """Writes a new folder, checks it, and puts it in the final place.

    Args:
      workdir: the run directory.
      artifact: the content of the folder.
      record: the record of the deployment, which receives the checks.
      inputs: the inputs to check outputs with.

    Raises:
      UserError: the model cannot be saved, or its outputs are wrong or all NaN.
    """
    new, final, checks = workdir / NEW_FOLDER, workdir / FOLDER, record["checks"]
    _remove(new, final)
    new.mkdir()
    try:
        no_blob_reason = artifact_lib.save(artifact, new)
        if no_blob_reason:
            checks["compiled model"] = f"not written: {no_blob_reason}"
        is_quantised = outputs.is_quantised(artifact.model)
        tolerance = outputs.tolerance(
            artifact.devices, quantised=is_quantised, max_error=inputs.max_error
        )
        errors = preflight.compare_outputs(new, artifact.model, inputs.samples)
        for source, (error, nan_share) in errors.items():
            if not error <= tolerance:  # also refuses a NaN
                raise UserError(
                    f"the deployed model computes wrong outputs after {source} ({error:.3g} of "
                    f"their spread, over {tolerance:g}); nothing was written"
                )
            checks[f"outputs after {source}"] = (
                f"off by {error:.2g} of their spread, up to {tolerance:g} allowed"
            )
            if nan_share:
                checks["NaN"] = (
                    f"{nan_share:.3g} of the output values are NaN, as on the reference device; "
                    "nothing else is known of them"
                )
        if artifact.dynamic is not None:
            checks["other shapes"] = _check_shapes(new, tolerance)
        record["files"] = {
            name: text
            for name, text in _DESCRIPTIONS.items()
            if name == _RECORD or (new / name).exists()
        }
        runs.write_text(new / "deploy.md", deployment.markdown(printable.data(record)))
        runs.write_json(new / _RECORD, record)
        _replace(new, final)
    except RuntimeError as error:
        raise UserError(f"the model cannot be deployed: {summarise_error(error)}") from error
    finally:
        _remove(new, final)


def _check_shapes(folder: Path, tolerance: float) -> str:
    """Runs a written folder with other shapes than the placed ones, and describes the results.

    Raises:
      UserError: outputs are wrong.
    """
    lines = []
    with artifact_lib.load(folder, concurrent=False) as network:
        for tested_shapes, comparison, refusal in network.check_other_shapes():
            listed = ", ".join(str(list(shape)) for shape in tested_shapes)
            if comparison is None:
                lines.append(f"{listed} refused: {refusal}")
            elif not comparison.error <= tolerance:
                raise UserError(
                    f"the deployed model computes wrong outputs for the shapes {listed} "
                    f"({comparison.error:.3g} of their spread, over {tolerance:g}); nothing was "
                    "written"
                )
            else:
                lines.append(f"{listed} off by {comparison.error:.2g}")
    return "; ".join(lines) or "none found that the model accepts"


def _replace(new: Path, final: Path) -> None:
    """Puts the new folder in the final place; afterwards `_remove` must sort out the old one."""
    if not final.exists():
        new.rename(final)
    elif not files.exchange_paths(new, final):
        # The model comes last: without it a reader finds no deployment, rather than a mixture.
        (final / artifact_lib.MODEL_FILE).unlink(missing_ok=True)
        for name in _FILE_NAMES:
            if (new / name).exists():
                os.replace(new / name, final / name)
            else:
                (final / name).unlink(missing_ok=True)


def _remove(new: Path, final: Path) -> None:
    """Removes the folder next to the final one.

    After an exchange it is the earlier deployment: the user's files in it move to the final folder.
    """
    files.remove_files(new, _FILE_NAMES)
    for path in new.iterdir() if new.exists() else ():
        if os.path.lexists(final / path.name):
            raise UserError(f"{str(path)!r} is in {str(final)!r} too; remove one of them")
        final.mkdir(exist_ok=True)
        path.rename(final / path.name)
    files.remove_files(new, ())
