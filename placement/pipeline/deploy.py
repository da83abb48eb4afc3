"""The `deploy` task: from placement.json to files that OpenVINO runs, verified here.

Writes DIR/deploy/; `placement.runtime.deployment.artifact` describes its files. If a plain device,
such as the whole CPU, is as fast as the placement, that device is deployed instead.

All files are written to a folder next to the final one and move from there, the manifest last. So a
reader finds either the earlier deployment or the new one, and so does a kill. The next command then
removes what only the killed one has written. Other files in the folder, such as the user's notes,
stay.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from placement import files
from placement.errors import UserError
from placement.pipeline import loading, workdirs
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.reporting import printable, runs, summaries, verdict
from placement.reporting.tables import results
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment import preflight
from placement.runtime.deployment.artifact import FILE_NAME, MANIFEST, SINGLE, Artifact
from placement.runtime.errors import summarise_error
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.models import fingerprint
from placement.runtime.models.fingerprint import quote_names
from placement.runtime.models.inputs import Inputs

FOLDER, NEW_FOLDER = "deploy", ".deploy.new"  # the latter while it is written
PAGE = "deploy.md"
_MOVED = "moved.json"  # in the new folder: the names of files that move, or are to be removed


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Deploys the placement of a run directory.

    Returns:
      The measurements and checks, which the manifest has, too.

    Raises:
      UserError: the placement is missing or does not fit the model or the devices, or its outputs
        are wrong.
    """
    loading.check_settings(settings)
    settings.refuse("measure_on", "deploy measures on this machine")
    placed = preflight.read(workdir / runs.PLACEMENT)
    new, final = workdir / NEW_FOLDER, workdir / FOLDER
    files.refuse_link(new)
    own_files = [f"{FOLDER}/{name}" for name in _list_own_files(final)]
    workdirs.claim(workdir, display, [settings.graph], outputs=own_files)
    _clean(new, final)
    _refuse_foreign(final, (artifact_lib.AFFINITIES, artifact_lib.LOADER, PAGE))
    net = loading.load_network(settings)
    loading.require_model(net, settings.graph)
    all_devices = preflight.find_devices(placed, settings.devices)
    used = tuple(device for device in all_devices if device.name in placed.used_devices)
    model_fingerprint = fingerprint.compute_fingerprint(net.model)
    if differences := fingerprint.describe_differences(placed.model, model_fingerprint):
        raise UserError(
            f"the model {net.graph.name!r} is not the one that was placed: "
            f"{'; '.join(differences)}; pass that one, or place this one"
        )
    inputs = loading.inputs(settings, net.model)
    with (
        display.phase("measuring the placement and the single devices"),
        LocalMeasurer(net.model, all_devices, inputs=inputs) as measurer,
    ):
        rows = preflight.measure(placed, measurer, seconds=settings.measure_s)

    # The verdict is that of reports, from the new measurements.
    preferred = f"single:{used[0].name}" if len(used) == 1 else ""
    row_by_method = {row.method: row.to_json() for row in rows}
    decided = verdict.decide([row_by_method[row.method] for row in rows if row.is_right], preferred)
    assert decided.winner is not None
    reason = verdict.sentence(decided).replace("`", "")
    failed = [row for row in rows if row.form == SINGLE and not row.is_right]
    if failed:
        causes = (f"{row.method}: {row_by_method[row.method]['status']}" for row in failed)
        reason += f" Not right: {'; '.join(causes)}."
    deployed = next(row for row in rows if row.method == decided.winner.row["method"])
    affinity, used, segments, _ = deployed.candidate
    form = deployed.form if affinity is not None else SINGLE
    artifact = Artifact(
        net.model, form, used, affinity or {}, segments or (), loading.load_dynamic(settings)
    )
    if affinity is None:
        for division in placed.divisions:
            for culprit in division["culprits"]:
                culprit["run_on"] = [used[0].name]  # with all other operations
    record: dict[str, Any] = {
        "graph": net.graph.name,
        "method": placed.method,
        "decision": reason,
        "fallback": affinity is None and deployed.method != preferred,
        "deployed": summaries.label(decided.winner.row),
        "seed": settings.seed,
        "rows": [*row_by_method.values()],
        "divisions": placed.divisions,
        "checks": {
            "devices": f"present: {', '.join(device.label for device in artifact.devices)}",
            "model": "the one that was placed",
            "inputs": inputs.description,
            "reference outputs": devices.reference_device().label,
        },
        "machine": devices.describe_machine(),
    }
    with display.phase("writing the deployed folder, and loading it"):
        try:
            _write(new, final, artifact, record, inputs)
        except RuntimeError as error:
            raise UserError(f"the model cannot be deployed: {summarise_error(error)}") from error
        finally:
            _clean(new, final)
    if nan := record["checks"].get("NaN"):
        display.warn(nan)
    shown = printable.data(record)
    display.console.print(results.deployment_table(shown))
    instead = " instead of the placement" if record["fallback"] else ""
    for line in (
        shown["decision"],
        f"deployed{instead}: {shown['deployed']}",
        f"load it: placement.load({str(final)!r})",
    ):
        display.console.print(line, markup=False, soft_wrap=True)
    return record


def _write(
    new: Path, final: Path, artifact: Artifact, record: dict[str, Any], inputs: Inputs
) -> None:
    """Writes a deployment, checks it, and moves it to its final place, the manifest last.

    `_clean` must follow. `record` receives the results of the checks.

    Raises:
      UserError: outputs are wrong, or a file that another program wrote would be replaced.
    """
    new.mkdir(exist_ok=True)
    written = artifact_lib.save(artifact, new)
    record["checks"] |= preflight.verify(new, artifact, inputs)
    page = results.deployment_report(printable.data(record), str(final))
    runs.write_text(new / PAGE, page)
    own_files = {**written.files, PAGE: artifact_lib.compute_digest(new / PAGE)}
    runs.write_json(new / MANIFEST, written._replace(files=own_files).to_json() | record)
    names = sorted(own_files)
    final.mkdir(exist_ok=True)
    _refuse_foreign(final, names)
    # After a kill from here on, these files are known to be ours.
    runs.write_json(new / _MOVED, sorted({*names, *_list_own_files(final)}))
    for name in (*names, MANIFEST):
        os.replace(new / name, final / name)


def _clean(new: Path, final: Path) -> None:
    """Removes the new folder, and files that it moved or replaced and no manifest names."""
    if (new / _MOVED).exists():
        moved = files.read_json(new / _MOVED, [str], remedy=f"remove {str(new)!r}")
        for name in filter(FILE_NAME.fullmatch, set(moved) - _list_own_files(final)):
            if not (final / name).is_symlink():
                (final / name).unlink(missing_ok=True)
    files.remove_files(new, ("*.xml", "*.bin", "*.json", "*.md", "*.cpp", ".*.tmp"))


def _list_own_files(final: Path) -> set[str]:
    """Returns the names of the files of the deployment in a folder; a UserError if it is none."""
    files.refuse_link(final)
    files.refuse_link(final / MANIFEST)
    if final.exists() and not final.is_dir():
        raise UserError(f"{str(final)!r} is a file; move it, to make room for the folder")
    if not (final / MANIFEST).exists():
        return set()
    remedy = f"move {str(final)!r} elsewhere"
    names = {*artifact_lib.read(final, remedy=remedy).files, MANIFEST}
    return {name for name in names if not (final / name).is_symlink()}


def _refuse_foreign(final: Path, names: Collection[str]) -> None:
    """Raises a UserError if a file that would be replaced is not of an earlier deployment."""
    own_names = _list_own_files(final)
    foreign = [name for name in names if name not in own_names and os.path.lexists(final / name)]
    if foreign:
        raise UserError(
            f"{str(final)!r} has {quote_names(foreign)}, which this program did not write; move "
            "what you need elsewhere, and remove it"
        )
