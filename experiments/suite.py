"""The suite of frozen problems on the command line.

    python -m experiments.suite list [SPLIT]
    python -m experiments.suite solve METHOD [SPLIT] [SECONDS]
    python -m experiments.suite bound [SECONDS] [METHOD]
    python -m experiments.suite build FOLDER

`list` prints the problems with their best known values. `solve` runs a method on every problem, by
default of all splits for 60 s each, and prints its values over the best known ones. It puts better
solutions into the archive. `bound` proves lower bounds, with a METHOD that proves some, such as
`cpsat`, or with the usual ones. `build` makes the files of problems again from their descriptions;
FOLDER has the public workloads.
"""

import math
import sys
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console

from placement import arguments, methods, solvers, suite
from placement.errors import UserError
from placement.pipeline import loading
from placement.pipeline.console import faults
from placement.pipeline.settings import Settings
from placement.pipeline.target import find_target
from placement.reporting import runs
from placement.reporting.tables import grids
from placement.solvers import base
from placement.suite import archive, problem_file
from placement.suite.archive import Best
from placement.types import Solution

_SECONDS = "60"
_TOLERANCE = 1e-6  # relative: an improvement has to be larger
_BUDGET = 10**12  # evaluations: only the time limits a method
_CONSOLE_WIDTH = 140
_PAIR, _LAPTOP = "roofline:cpu,gpu,gpu", "roofline:cpu,igpu,npu"  # of pretraining
_DESKTOP, _FOUR = "roofline:cpu,igpu,gpu,npu", "roofline:cpu,gpu,gpu,gpu,gpu"
_SERVER = "roofline:server_cpu," + ",".join(["server_gpu"] * 4)
_SERVER_8 = "roofline:server_cpu," + ",".join(["server_gpu"] * 7)
_MAKESPAN, _ALL = ("makespan",), ("makespan", "serial", "max_load")


class Recipe(NamedTuple):
    """A graph and devices from which problems are made, one for each objective."""

    name: str
    split: str
    family: str
    graph: str  # as `config.graph`; a workload's path begins with '{folder}'
    devices: str
    objectives: tuple[str, ...]


def _list_recipes() -> list[Recipe]:
    def synthetic(family: str, ops: int, seed: int) -> str:
        return f"synthetic:family={family},ops={ops},seed={seed}"

    rows: list[tuple[str, str, str, str, tuple[str, ...]]] = []  # name, split, graph, devices
    for number, (family, ops) in enumerate(
        [
            *(("layered", ops) for ops in (50, 300, 1000, 10_000)),
            *(("series_parallel", ops) for ops in (100, 500, 3000)),
        ]
    ):
        devices = (_PAIR, _LAPTOP)[number % 2]
        objectives = _ALL if ops in (300, 500) else _MAKESPAN
        rows.append(
            (f"{family}_{ops}", "training", synthetic(family, ops, number), devices, objectives)
        )
    rows += [
        ("resnet34", "training", "resnet:depth=34", _LAPTOP, _ALL),
        ("resnet50_training", "training", "resnet:depth=50,batch=16,training=1", _PAIR, _MAKESPAN),
        ("bert_4", "training", "bert:layers=4", _PAIR, _ALL),
        ("bert_12_training", "training", "bert:layers=12,training=1", _PAIR, _MAKESPAN),
        ("nmt_2", "training", "nmt:layers=2,steps=20", _PAIR, _MAKESPAN),
        ("nmt_4_training", "training", "nmt:layers=4,steps=30,training=1", _PAIR, _MAKESPAN),
        ("chain_300", "validation", synthetic("chain", 300, 0), _DESKTOP, ("max_load", "serial")),
        (
            *("sharded_chain", "validation"),
            *("synthetic:family=sharded_chain,shards=4,layers=4", _FOUR, ("makespan", "max_load")),
        ),
        (
            *("sharded_ffn", "validation"),
            *("synthetic:family=sharded_ffn,shards=4,layers=3", _FOUR, ("makespan", "max_load")),
        ),
        ("inception_v3", "test", "inception_v3", _DESKTOP, _ALL),
        (
            *("inception_v3_training", "test", "inception_v3:batch=32,training=1"),
            *(_SERVER, _MAKESPAN),
        ),
        ("two_stream", "test", "two_stream", _DESKTOP, _ALL),
        ("two_stream_101", "test", "two_stream:depth=101", _FOUR, _MAKESPAN),
        ("rnnlm_4", "test", "rnnlm:layers=4,steps=40", _FOUR, _ALL),
        ("rnnlm_2_training", "test", "rnnlm:layers=2,steps=35,training=1", _SERVER, _MAKESPAN),
        (
            *("rnnlm_8_training", "test", "rnnlm:layers=8,steps=60,training=1"),
            *(_SERVER_8, _MAKESPAN),
        ),
        ("fork_join_100", "test", synthetic("fork_join", 100, 0), _DESKTOP, _MAKESPAN),
        ("fork_join_600", "test", synthetic("fork_join", 600, 1), _FOUR, _ALL),
        ("fork_join_20000", "test", synthetic("fork_join", 20_000, 2), _DESKTOP, _MAKESPAN),
        (
            *("sharded_transformer_2", "test"),
            *("synthetic:family=sharded_transformer,shards=2,layers=4", _SERVER, _MAKESPAN),
        ),
        (
            *("sharded_transformer_4", "test"),
            *("synthetic:family=sharded_transformer,shards=4,layers=4", _SERVER_8, _MAKESPAN),
        ),
    ]
    for ops, count in ((100, 4), (200, 4), (200, 8), (500, 8)):
        text = f"synthetic:family=known_optimum,ops={ops},devices={count},seed=7"
        rows.append((f"known_optimum_{ops}_{count}", "test", text, "auto", _MAKESPAN))
    for stem, objective in (
        *(("layer_bert24", "subgraph"), ("layer_gnmt", "subgraph"), ("operator_bert3", "subgraph")),
        *(("layer_bert24", "max_load"), ("layer_gnmt", "max_load")),
        *(("layer_resnet50", "max_load"), ("operator_bert3", "max_load")),
    ):
        kind = "latency" if objective == "subgraph" else "throughput"
        graph = f"{{folder}}/{kind}/{stem}_inference.json"
        rows.append((f"tarnawski_{stem}", "test", graph, "auto", (objective,)))
    return [
        Recipe(name, split, _find_family(name), graph, devices, objectives)
        for name, split, graph, devices, objectives in rows
    ]


def _find_family(name: str) -> str:
    families = (
        *("layered", "series_parallel", "resnet", "bert", "nmt", "chain", "sharded_chain"),
        *("sharded_ffn", "inception_v3", "two_stream", "rnnlm", "fork_join"),
        *("sharded_transformer", "known_optimum", "tarnawski"),
    )
    return max((family for family in families if name.startswith(family)), key=len)


def build(folder: str) -> None:
    """Makes the files of all problems again; `suite.VERSION` must rise if any changes."""
    records = []
    problem_file.FOLDER.mkdir(exist_ok=True)
    for recipe in _list_recipes():
        for objective in recipe.objectives:
            settings = Settings(
                graph=recipe.graph.format(folder=folder),
                devices=recipe.devices,
                objective=objective,
                evaluate="simulate",
            )
            target = find_target(settings)
            assert target.costs is not None
            search_problem = loading.make_search_problem(
                target.net, target.costs, target.names, objective
            )
            # Coarsening stands for OpenVINO's fusions, which only real networks have.
            is_network = not recipe.graph.startswith("synthetic:")
            problem = search_problem.coarse if is_network else search_problem.full
            name = f"{recipe.name}-{objective}"
            graph = recipe.graph.replace("{folder}", "workloads")
            entry = suite.Entry(
                *(name, recipe.split, recipe.family, graph, recipe.devices, objective),
                *(problem.graph.num_ops, len(problem.devices)),
                problem_file.save(problem, problem_file.locate(name)),
            )
            print(entry)
            records.append(entry._asdict())
    runs.write_json(problem_file.FOLDER / problem_file.INDEX, records)


def print_problems(split: str = "") -> None:
    """Prints the problems with their best known values and bounds."""
    header = (
        *("problem", "split", "operations", "devices", "best known ms", "method"),
        *("bound ms", "gap"),
    )
    table = grids.new_table(f"version {suite.VERSION} of the suite", (), header)
    known = archive.read()
    for entry in suite.list_entries(split):
        best = known[entry.name]
        gap = "-" if math.isnan(best.bound_s) else f"{best.value_s / best.bound_s - 1:.1%}"
        bound = "-" if math.isnan(best.bound_s) else f"{1e3 * best.bound_s:.6g}"
        table.add_row(
            *(entry.name, entry.split, str(entry.num_ops), str(entry.num_devices)),
            *(f"{1e3 * best.value_s:.6g}", best.method, bound, gap),
        )
    Console(width=_CONSOLE_WIDTH).print(table)


def solve(method: str, split: str = "", seconds: str = _SECONDS) -> None:
    """Runs a method on every problem, and puts better solutions into the archive.

    Problems that the method is not for, and those for which it finds nothing, are left out.
    """
    for entry in suite.list_entries(split):
        solution, best = _solve(entry.name, method, seconds), suite.best_known(entry.name)
        if solution is None or solution.placement is None or not math.isfinite(solution.value_s):
            continue
        ratio = solution.value_s / best.value_s
        print(f"{entry.name}: {1e3 * solution.value_s:.6g} ms, {ratio:.4f} of the best known value")
        if ratio < 1 - _TOLERANCE:
            improved = Best(
                *(solution.value_s, best.bound_s, method, solution.placement, solution.order)
            )
            archive.write(archive.read() | {entry.name: improved})


def _solve(name: str, method: str, seconds: str) -> Solution | None:
    """Solves a problem; None, with a message, where the method refuses it.

    Raises:
      UserError: there is no such method, or the seconds are no number.
    """
    arguments.check_choice("method", method.partition(":")[0], methods.METHODS)
    problem, time_limit_s = suite.load(name), _parse_seconds(seconds)
    try:
        methods.check(method, problem.objective)
        return methods.solve(problem, method, time_limit_s=time_limit_s, budget=_BUDGET)
    except UserError as error:
        print(f"{name}: left out: {error}", file=sys.stderr)
        return None


def bound(seconds: str = _SECONDS, method: str = "") -> None:
    """Proves lower bounds of problems without a proven optimum, and keeps the highest ones."""
    known = archive.read()
    for name, best in known.items():
        if best.bound_s >= best.value_s * (1 - _TOLERANCE):
            continue
        if method:
            bound_s = _prove_bound(name, method, seconds)
        else:
            time_limit_s = _parse_seconds(seconds)
            bound_s = solvers.lower_bound(
                suite.load(name), time_limit_s=time_limit_s, any_order=True
            )
        # Single precision: a bound that equals the optimum may exceed its value by rounding.
        bound_s = min(max(bound_s, 0.0 if math.isnan(best.bound_s) else best.bound_s), best.value_s)
        known[name] = best._replace(bound_s=bound_s)
        print(f"{name}: {1e3 * bound_s:.6g} ms", flush=True)
        archive.write(known)


def _prove_bound(name: str, method: str, seconds: str) -> float:
    """Returns the bound that a method proves for all placements and orders; -inf without one."""
    solution = _solve(name, method, seconds)
    if solution is None or solution.scope != base.ALL or math.isnan(solution.bound_s):
        return -math.inf
    return solution.bound_s


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise UserError(f"given {text!r} as the seconds of a search; give a number, such as 30")
    return seconds


class _Command(NamedTuple):
    run: Callable[..., None]
    arguments: str
    counts: range  # of arguments


_COMMANDS = {
    "list": _Command(print_problems, "[SPLIT]", range(2)),
    "solve": _Command(solve, "METHOD [SPLIT] [SECONDS]", range(1, 4)),
    "bound": _Command(bound, "[SECONDS] [METHOD]", range(3)),
    "build": _Command(build, "FOLDER", range(1, 2)),
}


def main(argv: list[str]) -> None:
    """Runs a command with its arguments."""
    name, *values = argv[1:] or [""]
    command = _COMMANDS.get(name)
    try:
        if command is None or len(values) not in command.counts:
            usage = "; ".join(f"{key} {value.arguments}" for key, value in _COMMANDS.items())
            raise UserError(f"given {' '.join(argv[1:])!r}; give one of: {usage}")
        command.run(*values)
    except UserError as error:
        faults.exit_with(2, f"error: {error}")


if __name__ == "__main__":
    main(sys.argv)
