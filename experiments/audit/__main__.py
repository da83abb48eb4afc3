"""The audit: every method on problems of the suite that no training saw, many seeds each.

    python -m experiments.audit run [PROBLEM,... [POLICY ...]]
    python -m experiments.audit store
    python -m experiments.audit

`run` searches and keeps the runs in `runs/audit`: by default on all problems of the audit. It
leaves out what an earlier call has finished, so a run that was interrupted continues. Every POLICY
is the policy.msgpack of another pretraining of `hsdag`. Two processes may run different problems,
each on a core of its own: `taskset -c 0 python -m experiments.audit run fork_join_100-makespan`. A
solution that is better than the best known one is kept in `runs/audit/PROBLEM/METHOD.npz`, for
`python -m experiments.suite update`.

The methods of `tables.COMPARED` run first, on all problems, and then the others on those of the
split `test`.

`store` puts the runs of finished problems into `experiments/audit/runs.csv.gz`, in place of earlier
runs of the same methods on the same problems; of unfinished problems those of `tables.COMPARED`.
Without a command the tables of these runs are printed.

Each method searches twice with each seed: once with a budget of evaluations, once with a time
limit. The methods `_UNDECIDED` have more seeds with the budget. A search that is not learned runs a
third time, for 20 s and without compiled programs. A method without randomness has one seed.
"""

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import jax
from rich.console import Console

from experiments.audit import curves, runs, tables
from experiments.audit.runs import Run
from placement import arguments, methods, suite
from placement.errors import UserError
from placement.instance import Instance
from placement.methods import learned, pretrained
from placement.pipeline.console import exits
from placement.pipeline.console.compilation_cache import limit_compiled
from placement.reporting.tables import grids
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.suite import submission
from placement.types import Solution

FOLDER = Path("runs/audit")
_RUNS = "runs.csv"
_FINISHED = "finished"  # an empty file beside the runs of all methods
_SEEDS = 5
# Methods of the papers' conclusions that `_SEEDS` left undecided have more runs with a budget.
_UNDECIDED = (
    *("hsdag:variant=paper", "colocrl", "hierarchical:variant=paper", "scotch"),
    *("giph", "placeto"),
)
_BUDGET_SEEDS = 10
METHODS = (
    *tables.COMPARED,
    *("human_expert", "scotch", "metis", "lns", "cpsat"),
    *("hsdag:variant=paper", "hsdag:variant=released"),
    *("hierarchical:slices=0", "hierarchical:grouping=random", "hierarchical:variant=paper"),
    *("colocrl", "scheduler"),
    *tables.PARTS,
)
_UNTRAINED = "hsdag:variant=untrained"


def run(problems: str = "", *policies: str) -> None:
    """Runs what is missing, and prints a line for each method.

    Args:
      problems: by name, separated by commas; '' for all of the audit.
      *policies: files, see above.

    Raises:
      UserError: a problem or file does not exist.
    """
    entries = {entry.name: entry for entry in tables.list_problems()}
    names = problems.split(",") if problems else [*entries]
    for name in names:
        arguments.check_choice("problem", name, entries)
    searches = {method: methods.get_find(method) for method in METHODS}
    for number, policy in enumerate(policies, 1):
        searches[tables.PRETRAINING.format(number)] = partial(_find_with_policy, Path(policy))
    for is_compared in (True, False):
        for name in names:
            if not is_compared and entries[name].split != "test":
                continue
            problem, folder = suite.load(name), FOLDER / name
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / _RUNS
            finished = {run.method for run in runs.read(path)} if path.exists() else set()
            for method, find in searches.items():
                if method not in finished and (method in tables.COMPARED) == is_compared:
                    _run_method(name, problem, method, find, path)
                    limit_compiled()
            if not is_compared:
                (folder / _FINISHED).touch()


def _run_method(name: str, problem: Instance, method: str, find: base.Find, path: Path) -> None:
    """Runs a method with every seed and appends the runs; a method that cannot run is left out."""
    registered = methods.METHODS.get(method.partition(":")[0])
    if registered and (missing := registered.missing()):
        print(f"{name}: {method} left out: {missing}", file=sys.stderr)
        return
    is_seeded = registered is None or registered.seeded
    seeds = range(_SEEDS if is_seeded else 1)
    budget_seeds = range(_BUDGET_SEEDS) if method in _UNDECIDED else seeds
    is_search = registered is not None and registered.kind == "search"
    compiles = registered is None or registered.kind == "learned" or is_search
    try:
        compile_s = curves.measure_compilation(method, find, problem) if compiles else 0.0
        seconds = max(tables.WARM_S, tables.COLD_S - compile_s)
        num_parameters = _count_parameters(method, problem)
        run_curve = partial(curves.run, method, find, problem)
        searches = [(seed, tables.EVALUATIONS, tables.LIMIT_S) for seed in budget_seeds]
        searches += [(seed, 0, seconds) for seed in seeds]
        results = [
            (seed, budget, run_curve(seed, seconds=limit_s, budget=budget or curves.NO_BUDGET))
            for seed, budget, limit_s in searches
        ]
        # Other methods compile before their first step, so that their cold runs follow from these.
        for seed in seeds if is_search else ():
            jax.clear_caches()
            results.append((seed, runs.COLD, run_curve(seed, seconds=tables.COLD_S)))
    except UserError as error:
        print(f"{name}: {method} left out: {error}", file=sys.stderr)
        return
    runs.append(
        [
            Run(
                *(name, method, seed, budget, num_parameters),
                0.0 if budget == runs.COLD else compile_s,
                curve.points,
            )
            for seed, budget, curve in results
        ],
        path,
    )
    best = min((curve.solution for _, _, curve in results), key=lambda s: s.value_s)
    if best.placement is not None and submission.find_improvements(
        {name: best.value_s}, {name: suite.best_known(name)}
    ):
        answer = submission.Answer(best.placement, best.order)
        submission.write({name: answer}, path.with_name(f"{method}.npz"))
    values = sorted(curve.solution.value_s for _, _, curve in results)
    print(f"{name}: {method}: {values[0]:.6g} to {values[-1]:.6g} s", file=sys.stderr, flush=True)


def _find_with_policy(path: Path, problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Searches with `hsdag` from the parameters in a file."""
    return learned.find(
        _UNTRAINED, problem, seed, limits, load=partial(pretrained.load, path, _UNTRAINED)
    )


def _count_parameters(method: str, problem: Instance) -> int:
    """Counts the numbers that a learned method's policy learns; 0 for other methods."""
    if not learned.is_learned(method):
        return 0
    search = learned.Search.prepare(method, problem)
    shapes = jax.eval_shape(
        search.method.policy.init, jax.random.PRNGKey(0), search.policy_input.graph
    )
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def store() -> None:
    """Puts the runs of finished problems in place of stored ones of the same methods.

    Of other problems it puts those of `tables.COMPARED`.
    """
    all_runs = runs.read(runs.STORED) if runs.STORED.exists() else []
    for path in sorted(FOLDER.glob(f"*/{_RUNS}")):
        is_finished = path.with_name(_FINISHED).exists()
        all_runs += [r for r in runs.read(path) if is_finished or r.method in tables.COMPARED]
    kept = {(run.problem, run.method, run.seed, run.budget): run for run in all_runs}
    runs.store([kept[key] for key in sorted(kept)], runs.STORED)


def print_tables() -> None:
    """Prints the tables of the stored runs, and the sentences about them."""
    results = tables.read_stored()
    for title, (header, rows) in tables.make_tables(results).items():
        Console(width=200).print(grids.rich_table(header, rows, title=title))
    for sentence in tables.make_sentences(results):
        print(sentence)


def main(argv: Iterable[str]) -> None:
    """Runs a command with its arguments."""
    name, *values = [*argv][1:] or [""]
    commands = {"": print_tables, "run": run, "store": store}
    try:
        if name not in commands or (values and name != "run"):
            raise UserError(
                f"given {' '.join([name, *values])!r}; give 'run [PROBLEM,... [POLICY ...]]', "
                "'store' or nothing"
            )
        commands[name](*values)
    except UserError as error:
        exits.report_mistake(error)


if __name__ == "__main__":
    main(sys.argv)
