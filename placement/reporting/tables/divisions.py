"""Operations that are kept off a device because it computes them wrong, in Markdown.

A division is a record of `placement.pipeline.accuracy.Division.to_json`.
"""

from collections.abc import Sequence
from typing import Any

from placement.reporting.tables import grids

TITLE = "Operations kept off a device"
_COLUMNS = ("device", "operations", "output error", "run on")
_NUM_NAMES = 10  # names of operations in a cell


def markdown(divisions: Sequence[dict[str, Any]]) -> str:
    """Returns a sentence on each device, and a table of the operations and where they run."""
    sentences, rows = [], []
    for division in divisions:
        whole_error = division["whole_error"]
        differ = "are not finite" if whole_error is None else f"differ by {whole_error:.3g}"
        count = sum(len(culprit["ops"]) for culprit in division["culprits"])
        addition = f", with {division['num_beside']} more" if division["num_beside"] else ""
        sentences.append(
            f"With the whole model on `{division['label']}`, outputs {differ}, relative to their "
            f"spread on the plain f32 CPU; {division['max_error']:g} is accepted. Without the "
            f"operations below ({count}{addition}), they differ by {division['error']:.3g}. "
            f"Inputs: {division['num_inputs']}, of which {division['num_new_inputs']} served only "
            "this check."
        )
        for culprit in division["culprits"]:
            names = [f"`{name}`" for name in culprit["ops"][:_NUM_NAMES]]
            if len(culprit["ops"]) > _NUM_NAMES:
                names.append(f"{len(culprit['ops']) - _NUM_NAMES} more")
            error = culprit["error"]
            rows.append(
                (
                    division["device"],
                    ", ".join(names),
                    "not finite" if error is None else f"{error:.2g}",
                    ", ".join(culprit["run_on"]),
                )
            )
    legend = (
        "An output error is that of the model with only the row's operations, and those next to "
        "them if they were measured together, on the device."
    )
    table = grids.markdown(_COLUMNS, rows, numeric=(False, False, True, False))
    return "\n\n".join([*sentences, table, legend])
