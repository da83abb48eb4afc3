"""A pretrained policy on graphs of families that it was not trained on.

For every graph on every set of described devices, under `makespan`, it compares HEFT, the policy
without any learning on the graph (`zero_shot`) as trained and as initialised, and a whole search of
that graph: `lns` with its default budget. Only the policy's own placements count as its result. The
search may be worse than the policy; then the ratio to it is below 1. Chains are left out, since
they are coarsened to one operation.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import shared
from placement import files, methods
from placement.errors import UserError
from placement.methods import pretrained
from placement.pipeline.console.compilation_cache import limit_compiled
from placement.reporting.tables import grids
from placement.zoo import families

# No configuration trains a policy on the last of these, nor on any set of four devices.
_DEVICE_SETS = "roofline:cpu,gpu,gpu", "roofline:cpu,igpu,npu", "roofline:cpu,igpu,gpu,npu"
_NUM_MEMBERS = 6  # of each family
_SEARCH = "lns"
_RATIOS = "single", "heft", "untrained", "zero_shot"


class Cell(NamedTuple):
    """The results for a graph on a set of devices."""

    family: str
    graph: str
    devices: str
    num_ops: int  # after coarsening
    values: dict[str, float]  # by name; seconds


def run(*paths: str) -> None:
    """Prints a row for every set of devices.

    The path is that of a policy.msgpack, next to the pretraining.json of its run.
    """
    if len(paths) != 1:
        raise UserError("unseen takes one policy; pass the policy.msgpack of a --task=pretrain")
    table = grids.new_table(
        f"zero_shot, and the policy as it begins, over {_SEARCH}: median (worst)",
        ("devices",),
        ("graphs", "faster than HEFT", "zero_shot", "untrained", "training takes off"),
    )
    for row in make_device_rows(measure(paths[0])):
        table.add_row(*row)
    Console(width=140).print(table)


def make_device_rows(cells: list[Cell]) -> list[list[str]]:
    """Returns a row for every set of devices: ratios to the search are median (worst)."""
    rows = []
    for devices in dict.fromkeys(cell.devices for cell in cells):
        members = [cell for cell in cells if cell.devices == devices]
        is_faster = [cell.values["zero_shot_s"] < cell.values["heft_s"] for cell in members]
        _, _, untrained, zero_shot = np.array([compute_ratios(cell) for cell in members]).T
        gain = 1 - np.exp(np.log(zero_shot / untrained).mean())
        rows.append(
            [
                devices.partition(":")[2],  # without 'roofline:'
                *(str(len(members)), f"{100 * np.mean(is_faster):.0f}%"),
                *(f"{np.median(r):.3f} ({r.max():.3f})" for r in (zero_shot, untrained)),
                f"{100 * gain:.1f}%",
            ]
        )
    return rows


def measure(path: str) -> list[Cell]:
    """Returns a cell for every unseen graph on every set of devices, and prints each to stderr."""
    remedy = "it lists the training families: pass the policy of a run of --task=pretrain"
    description = Path(path).with_name("pretraining.json")
    record = files.read_json(description, {"families": str}, remedy=remedy)
    trained_on = (*record["families"].split(","), "chain")
    cases = [
        (family, families.draw(family, seed), devices)
        for family in families.names()
        if family not in trained_on
        for seed in range(_NUM_MEMBERS)
        for devices in _DEVICE_SETS
    ]
    cells = []
    for family, graph, devices in cases:
        problem = shared.describe_problem(graph, devices)
        search, params = pretrained.prepare(problem, Path(path))
        key = jax.random.PRNGKey(0)
        initial = jax.jit(search.method.policy.init)(key, search.policy_input.graph)
        singles = methods.single_device_placements(problem)
        values = {
            "single_s": float(np.min(problem.evaluate(singles))),
            "heft_s": methods.solve(problem, "heft").value_s,
            "untrained_s": pretrained.place(search, initial, key).value_s,
            "zero_shot_s": pretrained.place(search, params, key).value_s,
            "search_s": methods.solve(problem, _SEARCH).value_s,
        }
        cells.append(Cell(family, graph, devices, problem.graph.num_ops, values))
        print(f"{len(cells)} of {len(cases)}: {cells[-1]}", file=sys.stderr, flush=True)
        limit_compiled()
    return cells


def compute_ratios(cell: Cell) -> list[float]:
    """Returns the latencies of `_RATIOS`, each over the search's."""
    return [cell.values[f"{name}_s"] / cell.values["search_s"] for name in _RATIOS]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
