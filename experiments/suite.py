"""The suite of frozen problems on the command line.

    python -m experiments.suite list [SPLIT]
    python -m experiments.suite solve METHOD [SPLIT] [SECONDS]
    python -m experiments.suite bound [SECONDS]
    python -m experiments.suite build FOLDER

`list` prints the problems with their best known values. `solve` runs a method on every problem, by
default of all splits for 60 s each, and prints its values over the best known ones. It puts better
solutions and bounds into the archive. `bound` proves lower bounds. `build` makes the files of
problems again from the descriptions in the index; FOLDER has the public workloads.
"""

import collections
import dataclasses
import math
import sys
from typing import Any

import jax
import numpy as np
from rich.console import Console

from placement import arguments, methods, solvers, suite
from placement.errors import UserError
from placement.pipeline.console import faults
from placement.pipeline.settings import Settings
from placement.pipeline.target import find_target
from placement.problem import Problem
from placement.reporting import runs
from placement.reporting.tables import grids
from placement.solvers import base
from placement.suite import archive, problem_file
from placement.suite.archive import Best

_USAGE = "list [SPLIT]; solve METHOD [SPLIT] [SECONDS]; bound [SECONDS]; build FOLDER"
_TOLERANCE = 1e-6  # relative: an improvement has to be larger
_BUDGET = 10**12  # evaluations: only the time limits a method
_CONSOLE_WIDTH = 140
_WORKLOADS = "workloads/"  # the folder of public workloads in the index


def build(folder: str) -> None:
    """Makes the files of all problems again; `suite.VERSION` must rise if any changes."""
    entries = []
    for entry in suite.list_entries():
        settings = Settings(
            graph=entry.graph.replace(_WORKLOADS, f"{folder}/", 1),
            devices=entry.devices,
            objective=entry.objective,
            evaluate="simulate",
            input_shapes=entry.input_shapes,
        )
        target = find_target(settings)
        assert target.costs is not None
        problem = target.problem(entry.objective)
        # Coarsening stands for OpenVINO's fusions, which only real networks have.
        if entry.graph.startswith("synthetic:"):
            problem = problem._replace(graph=target.net.graph, costs=target.costs)
        problem = shuffle(problem, list(entry.name.encode()))
        digest = problem_file.save(problem, problem_file.locate(entry.name, suite.VERSION))
        entry = entry._replace(num_ops=problem.graph.num_ops, num_devices=len(problem.devices))
        entries.append(entry._replace(sha256=digest))
        print(entries[-1])
    records = [entry._asdict() for entry in entries]
    runs.write_json(problem_file.find_folder(suite.VERSION) / problem_file.INDEX, records)


def shuffle(problem: Problem, seed: list[int]) -> Problem:
    """Puts operations and edges in random order, so that no numbering tells of a good schedule."""
    rng, graph, costs = np.random.default_rng(seed), problem.graph, problem.costs
    ops, edges = rng.permutation(graph.num_ops), rng.permutation(graph.num_edges)
    number = np.argsort(ops).astype(np.int32)  # of each operation, in the new order
    fields: dict[str, Any] = {
        "edge_bytes": graph.edge_bytes[edges],
        "senders": number[graph.senders[edges]],
        "receivers": number[graph.receivers[edges]],
        "copy_sources": number[graph.copy_sources],
        "copy_readers": number[graph.copy_readers],
    }
    for field, chosen in (("colocation", ops), ("tensors", edges)):  # any distinct numbers will do
        values = getattr(graph, field)
        fields[field] = rng.permutation(values.max() + 1).astype(np.int32)[values[chosen]]
    fields |= {f: getattr(graph, f)[ops] for f in ("flops", "weight_bytes", "backward")}
    for field in ("op_names", "op_types", "output_shapes", "member_types"):
        fields[field] = tuple(getattr(graph, field)[op] for op in ops if getattr(graph, field))
    if graph.name.startswith("synthetic:"):
        fields["op_names"] = tuple(f"op{index}" for index in range(graph.num_ops))
    costs = costs._replace(
        compute_s=costs.compute_s[ops],
        memory_bytes=costs.memory_bytes[ops],
        transfer_fixed_s=costs.transfer_fixed_s[edges],
        fusion_loss_s=costs.fusion_loss_s[edges],
        tensor_bytes=jax.tree.map(lambda array: array[edges], costs.tensor_bytes),
    )
    return problem._replace(graph=dataclasses.replace(graph, **fields), costs=costs)


def print_problems(split: str = "") -> None:
    """Prints the problems with their best known values and bounds."""
    header = (
        *("problem", "split", "operations", "devices", "best known ms", "method"),
        *("bound ms", "gap"),
    )
    table = grids.new_table(f"version {suite.VERSION} of the suite", (), header)
    known = archive.read(suite.VERSION)
    for entry in suite.list_entries(split):
        best = known[entry.name]
        gap = "-" if math.isnan(best.bound_s) else f"{best.value_s / best.bound_s - 1:.1%}"
        bound = "-" if math.isnan(best.bound_s) else f"{1e3 * best.bound_s:.6g}"
        table.add_row(
            *(entry.name, entry.split, str(entry.num_ops), str(entry.num_devices)),
            *(f"{1e3 * best.value_s:.6g}", best.method, bound, gap),
        )
    summary_header, rows = summarise()
    summary = grids.new_table("all splits", (), summary_header)
    for row in rows:
        summary.add_row(*row)
    Console(width=_CONSOLE_WIDTH).print(table, summary, sep="\n")


def summarise() -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a table of the splits."""
    header = ["split", "problems", "families", "operations", "optimal", "best known values by"]
    known, rows = archive.read(suite.VERSION), []
    for split in dict.fromkeys(entry.split for entry in suite.list_entries()):
        entries = suite.list_entries(split)
        sizes, best = [e.num_ops for e in entries], [known[e.name] for e in entries]
        num_optimal = sum(b.value_s <= b.bound_s * (1 + _TOLERANCE) for b in best)
        counts = collections.Counter(b.method for b in best).most_common()
        shares = ", ".join(f"{method} {count / len(best):.0%}" for method, count in counts)
        families = ", ".join(dict.fromkeys(entry.family for entry in entries))
        sizes_text = f"{min(sizes):,} to {max(sizes):,}"
        rows.append([split, str(len(best)), families, sizes_text, str(num_optimal), shares])
    return header, rows


def solve(method: str, split: str, time_limit_s: float) -> None:
    """Runs a method on every problem, and puts better solutions and bounds into the archive.

    Problems that the method is not for, and those for which it finds nothing, are left out.
    """
    arguments.check_choice("method", method.partition(":")[0], methods.METHODS)
    for entry in suite.list_entries(split):
        problem = suite.load(entry.name)
        try:
            methods.check(method, problem.objective)
            solution = methods.solve(problem, method, time_limit_s=time_limit_s, budget=_BUDGET)
        except UserError as error:
            print(f"{entry.name}: left out: {error}", file=sys.stderr)
            continue
        if solution.placement is None or not math.isfinite(solution.value_s):
            continue
        ratio = solution.value_s / suite.best_known(entry.name).value_s
        print(f"{entry.name}: {1e3 * solution.value_s:.6g} ms, {ratio:.4f} of the best known value")
        # Only a bound for all placements and orders counts.
        bound_s = solution.bound_s if solution.scope == base.ALL else math.nan
        result = Best(solution.value_s, bound_s, method, solution.placement, solution.order)
        keep_best(entry.name, result)


def bound(time_limit_s: float) -> None:
    """Proves lower bounds of problems without a proven optimum, and keeps the highest ones."""
    for name, best in archive.read(suite.VERSION).items():
        if best.bound_s >= best.value_s * (1 - _TOLERANCE):
            continue
        problem = suite.load(name)
        bound_s = solvers.lower_bound(problem, time_limit_s=time_limit_s, any_order=True)
        print(f"{name}: {1e3 * bound_s:.6g} ms", flush=True)
        keep_best(name, best._replace(bound_s=bound_s))


def keep_best(name: str, result: Best) -> None:
    """Puts a solution into the archive if it is better, and its bound if it is higher."""
    known = archive.read(suite.VERSION)
    best = result if result.value_s < known[name].value_s * (1 - _TOLERANCE) else known[name]
    bound_s = float(np.fmax(known[name].bound_s, result.bound_s))  # ignores nan
    # Single precision: a bound that equals the optimum may exceed its value by rounding.
    known[name] = best._replace(bound_s=min(bound_s, best.value_s))
    archive.write(known, suite.VERSION)


def main(argv: list[str]) -> None:
    """Runs a command with its arguments."""

    def parse_seconds(text: str = "60") -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < math.inf:
            raise UserError(f"given {text!r} as the seconds of a search; pass a number, such as 30")
        return seconds

    try:
        match argv[1:]:
            case ["list", *split] if len(split) <= 1:
                print_problems(*split)
            case ["solve", method, *rest] if len(rest) <= 2:
                solve(method, "".join(rest[:1]), parse_seconds(*rest[1:]))
            case ["bound", *rest] if len(rest) <= 1:
                bound(parse_seconds(*rest))
            case ["build", folder]:
                build(folder)
            case words:
                raise UserError(f"given {' '.join(words)!r}; pass one of: {_USAGE}")
    except UserError as error:
        faults.exit_with(2, f"error: {error}")


if __name__ == "__main__":
    main(sys.argv)
