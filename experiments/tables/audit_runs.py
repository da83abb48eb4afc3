"""New runs of the audit: every method, many seeds, on one core (`taskset -c 0`).

    python -m experiments.tables audit [PROBLEM ...]

It runs what `audit.csv.gz` lacks of all problems, or of some, and adds each method's runs there; to
repeat runs, remove them from the file. Two processes must not run at the same time. Methods outside
`audit.COMPARED` run on problems of the split `test`.

Each method searches twice with each seed: once with a budget of evaluations, once with a time
limit. `_UNDECIDED` have more seeds with the budget. A search that is not learned runs a third time,
for 20 s and without compiled programs. A method without randomness has one seed.

Seconds are those of the processor, which other processes change less than those of a clock. Those
of a learned method begin with its first step. What comes before counts as compilation: compiling
its programs, and imitation in `doppler`.
"""

import sys
import time
from collections.abc import Sequence

import jax
import numpy as np

from experiments.tables import audit
from experiments.tables.audit import COLD, Point, Run
from placement import arguments, methods, suite
from placement.errors import UserError
from placement.learning import trainer
from placement.methods import learned
from placement.pipeline.console.compilation_cache import limit_compiled
from placement.problem import Problem
from placement.solvers import base
from placement.solvers.limits import SearchLimits

_SEEDS, _BUDGET_SEEDS = 5, 10
# Methods of the papers' conclusions that `_SEEDS` left undecided; they have `_BUDGET_SEEDS`.
_UNDECIDED = (
    *("hsdag", "hierarchical", "scotch"),
    *("colocrl:variant=tuned", "giph:variant=tuned", "placeto:variant=tuned"),
)
METHODS = (
    *audit.COMPARED,
    *("human_expert", "scotch", "metis", "lns", "cpsat"),
    *("hsdag", "hsdag:variant=released", "hierarchical", "scheduler"),
    *(f"hierarchical:variant=tuned,{part}" for part in ("slices=0", "grouping=random")),
    "colocrl:variant=tuned",
)
_NO_BUDGET = 10**12  # evaluations
_FIRST = 64  # evaluations, for which a learned method compiles all of its programs
_STEP = 1e-4  # relative: a smaller improvement is not a separate point
# Of searches that show how long compilation takes. The time decides which fast methods contribute
# starts, and so whether a start is proven optimal or chains are compiled.
_LIMITS_S = 20.0, 5.0


def run(names: Sequence[str]) -> None:
    """Runs what is missing on some problems, by default all; prints a line for each method."""
    problems, runs = audit.list_problems(split=""), audit.read_stored()
    for name in names or problems:
        arguments.check_choice("problem", name, problems)
        for method in METHODS:
            is_stored = any((r.problem, r.method) == (name, method) for r in runs)
            is_extra = name not in audit.list_problems() and method not in audit.COMPARED
            if is_stored or is_extra:
                continue
            try:
                made = run_method(name, method)
            except UserError as error:
                print(f"{name}: {method} left out: {error}", file=sys.stderr)
                continue
            runs = sorted([*runs, *made], key=lambda r: r[:4])
            audit.write(runs, audit.STORED)
            values_s = sorted(r.best_until() for r in made)
            print(f"{name}: {method}: {values_s[0]:.6g} to {values_s[-1]:.6g} s", flush=True)
            limit_compiled()


def run_method(name: str, method: str) -> list[Run]:
    """Runs a method with every seed."""
    problem, registered = suite.load(name, audit.VERSION), methods.METHODS[method.partition(":")[0]]
    if missing := registered.missing():
        raise UserError(missing)
    find = methods.find(method, "makespan")
    is_search = registered.kind == "search"
    seeds = range(_SEEDS if registered.seeded else 1)
    num_parameters, compile_s = 0, 0.0
    if methods.is_learned(method):
        search = learned.Search.prepare(method, problem)
        init, graph = search.method.policy.init, search.policy_input.graph
        shapes = jax.eval_shape(init, jax.random.PRNGKey(0), graph)
        num_parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    if registered.kind in ("search", "learned"):
        compile_s = measure_compilation(method, find, problem)
    warm_s = max(audit.WARM_S, audit.COLD_S - compile_s)
    budget_seeds = range(_BUDGET_SEEDS) if method in _UNDECIDED else seeds
    cells = [(seed, audit.EVALUATIONS, audit.LIMIT_S) for seed in budget_seeds]
    cells += [(seed, 0, warm_s) for seed in seeds]
    # Other methods compile before their first step, so that their cold runs follow from these.
    cells += [(seed, COLD, audit.COLD_S) for seed in seeds if is_search]
    runs = []
    for seed, budget, limit_s in cells:
        if budget == COLD:
            limit_compiled(0)
        evaluations = budget if budget > 0 else _NO_BUDGET
        points, _ = run_curve(method, find, problem, seed, limit_s, evaluations)
        compiled_s = 0.0 if budget == COLD else compile_s
        runs.append(Run(name, method, seed, budget, num_parameters, compiled_s, points))
    return runs


def run_curve(
    method: str,
    find: base.Find,
    problem: Problem,
    seed: int,
    limit_s: float,
    budget: int = _NO_BUDGET,
    stop_after: int = _NO_BUDGET,
) -> tuple[tuple[Point, ...], float]:
    """Runs a search and returns the points of its curve, and the seconds that it compiled.

    Args:
      method: its name, for messages.
      find: the method.
      problem, seed: as of `methods.solve`.
      limit_s: the time limit.
      budget: evaluations at most, which the method knows in advance.
      stop_after: evaluations after which the search is stopped.
    """
    points: list[Point] = []
    start_s = time.process_time()

    def observe(evaluations: int, best_s: float, *_: object) -> None:
        # The released HSDAG evaluates its starts, the single devices, as 1e10 s.
        value_s = best_s if best_s < trainer.RELEASED_SINGLE_DEVICE_S else np.inf
        points.append(Point(time.process_time() - start_s, evaluations, value_s))

    def stop() -> bool:
        return bool(points) and points[-1].evaluations >= stop_after

    limits = SearchLimits(limit_s, budget, observe, stop, time.process_time)
    solution = methods.run(method, find, problem, seed, limits)
    observe(max(solution.evaluations, points[-1].evaluations if points else 1), solution.value_s)
    # A step that has begun is completed, so that the end may come after the limit.
    points = [
        point._replace(seconds=min(max(0.0, point.seconds - solution.compile_s), limit_s))
        for point in points
    ]
    thinned = points[:1]
    for point in points[1:-1]:
        if point.best_s < thinned[-1].best_s * (1 - _STEP):
            thinned.append(point)
    return (*thinned, *points[1:][-1:]), solution.compile_s


def measure_compilation(method: str, find: base.Find, problem: Problem) -> float:
    """Returns the seconds that a search takes longer in a new process than later.

    Later searches of the process with the same problem then compile nothing. A learned method
    compiles all of its programs for its first step. Other searches compile some of theirs later,
    and so run until each of `_LIMITS_S`.
    """
    is_learned = methods.is_learned(method)
    total_s = 0.0
    limit_compiled(0)
    for limit_s in _LIMITS_S[:1] if is_learned else _LIMITS_S:
        (cold, compile_s), (warm, _) = (
            run_curve(
                *(method, find, problem, 0, limit_s),
                stop_after=_FIRST if is_learned else _NO_BUDGET,
            )
            for _ in range(2)
        )
        common = min(cold[-1].evaluations, warm[-1].evaluations)
        cold_s, warm_s = (
            float(np.interp(common, [p.evaluations for p in curve], [p.seconds for p in curve]))
            for curve in (cold, warm)
        )
        total_s += compile_s + max(0.0, cold_s - warm_s)
    return total_s
