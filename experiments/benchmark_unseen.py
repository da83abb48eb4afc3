"""Graphs that a pretrained policy has never seen, of families that it did not learn on.

Each graph on each set of described devices, `makespan`: HEFT; the policy without learning on the
graph (`zero_shot`), as trained and as it begins; and a whole search of that graph, `lns` with its
default budget of placements. Nothing stands in for the policy. The search is allowed to be worse,
and then the ratio to it is below 1. Chains, which are coarsened to one operation, are left out.
"""

import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import build, learned, methods
from placement import files, solvers
from placement.costs import roofline
from placement.types import Params, Problem
from placement.zoo import families

# The last are as many and such as no training has seen that `configs/pretrain.py` describes.
_DEVICES = "roofline:cpu,gpu,gpu", "roofline:cpu,igpu,npu", "roofline:cpu,igpu,gpu,npu"
_MEMBERS = 6  # of each family
_SEARCH = "lns"


class _Cell(NamedTuple):
    """What was found of one graph; latencies in seconds."""

    num_ops: int
    single_s: float
    heft_s: float
    beginning_s: float
    zero_shot_s: float
    search_s: float
    took_s: float  # by `zero_shot`, compiled before


def run(path: str) -> None:
    """Prints a row for every graph, and what the rows say together.

    Args:
      path: of a policy.msgpack, beside which is the pretraining.json of its run.

    Raises:
      UserError: one of them cannot be read: one line.
    """
    method = learned.of_checkpoint(path)
    seen = _families_seen(Path(path).with_name("pretraining.json"))
    texts = [
        families.draw(family, seed)
        for family in families.names()
        if family not in (*seen, "chain")
        for seed in range(_MEMBERS)
    ]
    table = Table(title=f"makespan over that of a whole search ({_SEARCH}); learned on {seen}")
    for column in ("graph", "devices", "operations", *_RATIOS, "zero_shot takes s"):
        table.add_column(column, justify="left" if column in ("graph", "devices") else "right")
    cells: dict[str, list[_Cell]] = {devices: [] for devices in _DEVICES}
    work = [(text, devices) for text in texts for devices in _DEVICES]
    for number, (text, devices) in enumerate(work, 1):
        cell = _cell(text, devices, method, path)
        cells[devices].append(cell)
        ratios = [f"{ratio:.3f}" for ratio in _ratios(cell)]
        table.add_row(text, _kinds(devices), str(cell.num_ops), *ratios, f"{cell.took_s:.2f}")
        print(f"{number} of {len(work)}: {text}, {devices}:", *ratios, file=sys.stderr, flush=True)
    console = Console(width=140)
    console.print(table)
    console.print(_summary(cells))


_RATIOS = "single", "heft", "untrained", "zero_shot"


def _ratios(cell: _Cell) -> list[float]:
    found = cell.single_s, cell.heft_s, cell.beginning_s, cell.zero_shot_s
    return [value_s / cell.search_s for value_s in found]


def _families_seen(path: Path) -> tuple[str, ...]:
    remedy = "it says what the policy learned on: give that of a --task=pretrain's run directory"
    return tuple(files.read_json(path, {"families": str}, remedy=remedy)["families"].split(","))


def _cell(text: str, devices: str, method: str, path: str) -> _Cell:
    names = roofline.devices(devices)
    net = build.without_weights(text)
    costs = roofline.cost_model(net.graph, names)
    setting = build.setting(net, costs, names, "makespan")
    problem = setting.coarse
    everywhere = np.arange(len(names))[:, None].repeat(problem.graph.num_ops, axis=1)
    made = learned.make(method, len(names), False)
    reading = made.read(problem)
    beginning = jax.jit(made.policy.init)(jax.random.PRNGKey(0), reading.graph)
    trained = learned.load(path, method, beginning)
    before_s, _ = _placed(made, beginning, reading, problem)
    after_s, took_s = _placed(made, trained, reading, problem)
    return _Cell(
        num_ops=problem.graph.num_ops,
        single_s=float(np.min(setting.simulate(everywhere))),
        heft_s=solvers.solve("heft", problem).value_s,
        beginning_s=before_s,
        zero_shot_s=after_s,
        search_s=solvers.solve(_SEARCH, problem).value_s,
        took_s=took_s,
    )


def _placed(
    made: learned.Method, params: Params, reading: learned.Reading, problem: Problem
) -> tuple[float, float]:
    """A placement's latency, and the seconds to find it; the first call on a problem compiles."""
    started_s = time.perf_counter()
    found = methods.place_unseen(made, reading, problem, params, jax.random.PRNGKey(0))
    return float(found.latency_s[-1]), time.perf_counter() - started_s


def _summary(cells: dict[str, list[_Cell]]) -> Table:
    """What the rows of each set of devices say together."""
    table = Table(title="zero_shot, and the policy as it begins, over the search: median (worst)")
    table.add_column("devices")
    for column in ("graphs", "faster than HEFT", "zero_shot", "untrained", "training takes off"):
        table.add_column(column, justify="right")
    for devices, some in cells.items():
        faster = np.mean([cell.zero_shot_s < cell.heft_s for cell in some])
        _, _, beginning, ours = np.array([_ratios(cell) for cell in some]).T
        gained = 1 - np.exp(np.log(ours / beginning).mean())
        table.add_row(
            _kinds(devices),
            str(len(some)),
            f"{100 * faster:.0f}%",
            *(f"{np.median(ratios):.3f} ({ratios.max():.3f})" for ratios in (ours, beginning)),
            f"{100 * gained:.1f}%",
        )
    return table


def _kinds(devices: str) -> str:
    return devices.partition(":")[2]
