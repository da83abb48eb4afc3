"""Graphs that a pretrained policy has never seen, of families that it did not learn on.

Each graph on each set of described devices, `makespan`: HEFT; the policy without learning on the
graph (`zero_shot`), as trained and as it begins; and a whole search of that graph, `lns` with its
default budget of placements. Nothing stands in for the policy. The search is allowed to be worse,
and then the ratio to it is below 1. Chains, which are coarsened to one operation, are left out.
"""

import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.benchmarks import timing
from placement import files, methods
from placement.costs import roofline
from placement.errors import UserError
from placement.methods import pretrained
from placement.pipeline import loading
from placement.zoo import families

# The last are as many and such as no training has seen that `configs/pretrain.py` describes.
DEVICES = "roofline:cpu,gpu,gpu", "roofline:cpu,igpu,npu", "roofline:cpu,igpu,gpu,npu"
_MEMBERS = 6  # of each family
_SEARCH = "lns"


class Cell(NamedTuple):
    """What was found of one graph on one set of devices; latencies in seconds."""

    family: str
    graph: str
    devices: str
    num_ops: int
    single_s: float
    heft_s: float
    beginning_s: float
    zero_shot_s: float
    search_s: float
    took_s: float  # by `zero_shot`, compiled before


def run(*paths: str) -> None:
    """Prints a row for every graph, and what the rows say together.

    Args:
      *paths: one, of a policy.msgpack, beside which is the pretraining.json of its run.

    Raises:
      UserError: there is not one, or one of the files cannot be read: one line.
    """
    if len(paths) != 1:
        raise UserError("unseen takes one policy; give the policy.msgpack of a --task=pretrain")
    cells = measure(paths[0])
    table = timing.table(
        f"makespan over that of a whole search ({_SEARCH})",
        ("graph", "devices"),
        ("operations", *_RATIOS, "zero_shot takes s"),
    )
    for cell in cells:
        numbers = [f"{ratio:.3f}" for ratio in ratios(cell)]
        described = cell.graph, _kinds(cell.devices), str(cell.num_ops)
        table.add_row(*described, *numbers, f"{cell.took_s:.2f}")
    console = Console(width=140)
    console.print(table)
    console.print(_summary(cells))


def measure(path: str) -> list[Cell]:
    """Returns a cell for every graph on every set of devices; prints each to stderr as it comes.

    Raises:
      UserError: as `run`.
    """
    seen = families_seen(Path(path).with_name("pretraining.json"))
    work = [
        (family, families.draw(family, seed), devices)
        for family in families.names()
        if family not in (*seen, "chain")
        for seed in range(_MEMBERS)
        for devices in DEVICES
    ]
    cells = []
    for number, (family, text, devices) in enumerate(work, 1):
        cells.append(_cell(family, text, devices, Path(path)))
        numbers = [f"{ratio:.3f}" for ratio in ratios(cells[-1])]
        print(f"{number} of {len(work)}: {text}, {devices}:", *numbers, file=sys.stderr, flush=True)
    return cells


_RATIOS = "single", "heft", "untrained", "zero_shot"


def ratios(cell: Cell) -> list[float]:
    """Returns those of the single device, HEFT, the policy untrained and trained to the search."""
    values_s = cell.single_s, cell.heft_s, cell.beginning_s, cell.zero_shot_s
    return [value_s / cell.search_s for value_s in values_s]


def families_seen(path: Path) -> tuple[str, ...]:
    """Returns the families that a policy has learned on, by its pretraining.json.

    Raises:
      UserError: it cannot be read: one line.
    """
    remedy = "it says what the policy learned on: give that of a --task=pretrain's run directory"
    return tuple(files.read_json(path, {"families": str}, remedy=remedy)["families"].split(","))


def _cell(family: str, text: str, devices: str, path: Path) -> Cell:
    names = roofline.devices(devices)
    net = loading.without_weights(text)
    costs = roofline.cost_model(net.graph, names)
    whole = loading.search_problem(net, costs, names, "makespan")
    problem = whole.coarse
    everywhere = np.arange(len(names))[:, None].repeat(problem.graph.num_ops, axis=1)
    trained = pretrained.prepare(problem, path, 0)._replace(key=jax.random.PRNGKey(0))
    beginning = jax.jit(trained.search.method.policy.init)(
        trained.key, trained.search.policy_input.graph
    )
    before_s, _ = _placed(trained._replace(params=beginning))
    after_s, took_s = _placed(trained)
    return Cell(
        family=family,
        graph=text,
        devices=devices,
        num_ops=problem.graph.num_ops,
        single_s=float(np.min(whole.simulate(everywhere))),
        heft_s=methods.solve(problem, "heft").value_s,
        beginning_s=before_s,
        zero_shot_s=after_s,
        search_s=methods.solve(problem, _SEARCH).value_s,
        took_s=took_s,
    )


def _placed(policy: pretrained.Pretrained) -> tuple[float, float]:
    """Returns a placement's latency and the seconds to find it; a problem's first call compiles."""
    started_s = time.perf_counter()
    placed = pretrained.place(policy)
    return placed.value_s, time.perf_counter() - started_s


def _summary(cells: list[Cell]) -> Table:
    """Returns what the rows of each set of devices say together."""
    table = timing.table(
        "zero_shot, and the policy as it begins, over the search: median (worst)",
        ("devices",),
        ("graphs", "faster than HEFT", "zero_shot", "untrained", "training takes off"),
    )
    for devices in DEVICES:
        some = [cell for cell in cells if cell.devices == devices]
        faster = np.mean([cell.zero_shot_s < cell.heft_s for cell in some])
        _, _, beginning, ours = np.array([ratios(cell) for cell in some]).T
        gained = 1 - np.exp(np.log(ours / beginning).mean())
        table.add_row(
            _kinds(devices),
            str(len(some)),
            f"{100 * faster:.0f}%",
            *(f"{np.median(of):.3f} ({of.max():.3f})" for of in (ours, beginning)),
            f"{100 * gained:.1f}%",
        )
    return table


def _kinds(devices: str) -> str:
    return devices.partition(":")[2]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
