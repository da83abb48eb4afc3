"""A pretrained policy on graphs of families that it was not trained on.

For every graph on every set of described devices, under `makespan`, it compares HEFT, the policy
without any learning on the graph (`zero_shot`) as trained and as initialised, and a whole search of
that graph: `lns` with its default budget. Only the policy's own placements count as its result. The
search may be worse than the policy; then the ratio to it is below 1. Chains are left out, since
they are coarsened to one operation.
"""

import functools
import json
import sys
import time
from pathlib import Path

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import cells as cells_lib
from experiments.benchmarks.cells import Cell
from placement import files, methods
from placement.errors import UserError
from placement.instance import Instance
from placement.methods import pretrained
from placement.reporting.tables import grids
from placement.zoo import families

_SEARCH = "lns"
_RATIOS = "single", "heft", "untrained", "zero_shot"


def run(*paths: str) -> None:
    """Prints a row for every graph and a summary for every set of devices.

    Args:
      *paths: one policy.msgpack, next to the pretraining.json of its run.

    Raises:
      UserError: not one path, or one of the two files cannot be read.
    """
    if len(paths) != 1:
        raise UserError("unseen takes one policy; pass the policy.msgpack of a --task=pretrain")
    cells = measure(paths[0])
    table = grids.new_table(
        f"makespan over that of a whole search ({_SEARCH})",
        ("graph", "devices"),
        ("operations", *_RATIOS, "zero_shot takes s"),
    )
    for cell in cells:
        ratios = [f"{ratio:.3f}" for ratio in compute_ratios(cell)]
        table.add_row(
            *(cell.graph, cell.device_kinds, str(cell.num_ops)),
            *(*ratios, f"{cell.values['zero_shot_search_s']:.2f}"),
        )
    summary = grids.new_table(
        "zero_shot, and the policy as it begins, over the search: median (worst)",
        ("devices",),
        ("graphs", "faster than HEFT", "zero_shot", "untrained", "training takes off"),
    )
    for row in make_device_rows(cells):
        summary.add_row(*row)
    console = Console(width=140)
    console.print(table)
    console.print(summary)


def make_device_rows(cells: list[Cell]) -> list[list[str]]:
    """Returns a row for every set of devices: ratios to the search are median (worst)."""
    rows = []
    for devices in dict.fromkeys(cell.device_kinds for cell in cells):
        members = [cell for cell in cells if cell.device_kinds == devices]
        is_faster = [cell.values["zero_shot_s"] < cell.values["heft_s"] for cell in members]
        _, _, untrained, zero_shot = np.array([compute_ratios(cell) for cell in members]).T
        gain = 1 - np.exp(np.log(zero_shot / untrained).mean())
        rows.append(
            [
                *(devices, str(len(members)), f"{100 * np.mean(is_faster):.0f}%"),
                *(f"{np.median(r):.3f} ({r.max():.3f})" for r in (zero_shot, untrained)),
                f"{100 * gain:.1f}%",
            ]
        )
    return rows


def measure(path: str) -> list[Cell]:
    """Returns a cell for every unseen graph on every set of devices.

    Raises:
      UserError: as `run`.
    """
    trained_on = read_training_families(Path(path).with_name("pretraining.json"))
    names = [family for family in families.names() if family not in (*trained_on, "chain")]
    measure_problem = functools.partial(_measure_problem, path=Path(path))
    return cells_lib.measure_cells(cells_lib.family_cases(names), measure_problem)


def read_training_families(path: Path) -> tuple[str, ...]:
    """Returns the families that a policy was trained on, from its pretraining.json.

    Raises:
      UserError: the file cannot be read.
    """
    remedy = "it lists the training families: give the one in the run directory of --task=pretrain"
    return tuple(files.read_json(path, {"families": str}, remedy=remedy)["families"].split(","))


def _measure_problem(problem: Instance, path: Path) -> dict[str, float]:
    single_devices = np.arange(len(problem.devices))[:, None].repeat(problem.graph.num_ops, axis=1)
    search, params = pretrained.prepare(problem, path)
    key = jax.random.PRNGKey(0)
    initial = jax.jit(search.method.policy.init)(key, search.policy_input.graph)
    # The first call for a problem compiles, so only the second one is timed.
    untrained = pretrained.place(search, initial, key)
    start_s = time.perf_counter()
    zero_shot = pretrained.place(search, params, key)
    elapsed_s = time.perf_counter() - start_s
    return {
        "single_s": float(np.min(problem.evaluate(single_devices))),
        "heft_s": methods.solve(problem, "heft").value_s,
        "untrained_s": untrained.value_s,
        "zero_shot_s": zero_shot.value_s,
        "search_s": methods.solve(problem, _SEARCH).value_s,
        "zero_shot_search_s": elapsed_s,
    }


def compute_ratios(cell: Cell) -> list[float]:
    """Returns the latencies of `_RATIOS`, each over the search's."""
    return [cell.values[f"{name}_s"] / cell.values["search_s"] for name in _RATIOS]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
