"""The table of all methods, learned and classical, and the one function that runs any of them.

    methods.solve(problem, "lns", time_limit_s=10)
    methods.solve(problem, "hsdag:num_samples=16", budget=4_000)

OpenVINO's own choices need its devices: the tasks `place` and `compare` have them, `solve` has not.
"""

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement import arguments, simulators, solvers
from placement.errors import UserError, missing_extra
from placement.graphs import dag
from placement.problem import Problem
from placement.runtime import scotch
from placement.solvers import base
from placement.solvers.limits import START_KINDS, Observe, SearchLimits, ignore_progress
from placement.types import OUT_OF_MEMORY, Solution, Status

if TYPE_CHECKING:
    from placement.policies.base import Recipe

ALL_OBJECTIVES = tuple(simulators.OBJECTIVES)
_PROVEN_INFEASIBLE = {
    base.ALL: "no placement keeps all limits, as {} proved",
    base.GIVEN_ORDER: "no placement keeps all limits, as {} proved",
    base.CONTIGUOUS: "no contiguous placement keeps all limits, as {} proved",
}


class Method(NamedTuple):
    """One way to place a problem; its module is imported when it is used or described."""

    # 'learned', 'pretrained', 'openvino', 'search', 'baseline', 'partitioner' or 'solver'
    kind: str
    # Its `base.Find`, or the `Recipe` of a learned method; or where that is, 'module:name'.
    source: "str | base.Find | Recipe"
    objectives: tuple[str, ...] = ALL_OBJECTIVES  # the objectives that it minimises
    needs: str = ""  # the optional package or program that it needs
    proves: bool = False  # whether it proves optima of small problems, see `Solution.scope`
    seeded: bool = True  # whether the seed may change the result
    options: Mapping[str, Any] = MappingProxyType({})  # keywords of its function

    def load(self) -> Any:
        """Returns its function, or the recipe of a learned method."""
        if not isinstance(self.source, str):
            return self.source
        module, _, name = self.source.partition(":")
        return getattr(importlib.import_module(f"placement.{module}"), name)

    @property
    def summary(self) -> str:
        """One line: the first of the documentation of the function, or of the policy's module."""
        loaded = self.load()
        documented = inspect.getmodule(loaded.make) if self.kind == "learned" else loaded
        return (documented.__doc__ or "").partition("\n")[0].rstrip(".")

    def missing(self) -> str | None:
        """Says in one line which package or program is not installed; None if none is missing."""
        if self.needs == "scotch":
            return scotch.describe_missing()
        if self.needs and not importlib.util.find_spec(self.needs):
            return missing_extra(self.needs, "solvers")
        return None


def solve(
    problem: Problem,
    method: str,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    budget: int = solvers.BUDGET,
    starts: str = "heuristics",
    observe: Observe = ignore_progress,
    stop: Callable[[], bool] = lambda: False,
) -> Solution:
    """Searches for the best placement of a problem, in its simulator.

    Args:
      problem: the graph, its costs and the objective. Its order of priority, where given, is that
        of all methods; `search` and `cpsat_free` may return another one.
      method: a key of `METHODS`; a learned one may have arguments, see `placement.methods.learned`.
      seed: of all randomness.
      time_limit_s: when to stop. The time of a learned method counts from its first step: what it
        compiles before that is in `Solution.compile_s`. For other methods compilation counts.
        Building a model and a step that has begun are not cut off.
      budget: the number of placements that are evaluated at most. Exact solvers spend it only on
        improving the placement that they start from, if at all.
      starts: where searches start: at the single devices and what heuristics find, or at the single
        devices alone ('single'). Starts count as evaluations.
      observe: called after every step of a search, from any thread, with the number of evaluations,
        the best value, the best placement int [N], and other numbers by name. The value is inf and
        the placement None while none that can run is known.
      stop: whether to end before the time is over, with the best placement so far.

    Returns:
      The solution, with its value from the problem's simulator. `bound_s` is a lower bound of the
      placements in `scope`, nan where the method has none. Where no placement that can run was
      found the value is inf and the status is INFEASIBLE if that is proven, else FAILED.

    Raises:
      UserError: the method or an argument does not exist, the method is not for this objective or
        problem, the problem's order is not topological, or a package that the method needs is not
        installed: one line.
    """
    arguments.check_choice("starts", starts, START_KINDS)
    search = find(method, problem.objective)
    if entry(method).kind == "openvino":
        raise UserError(
            f"method {method!r} asks OpenVINO's devices; only place and compare have it"
        )
    if problem.order is not None:
        dag.check_order(problem.graph, problem.order)
        if entry(method).kind in ("learned", "pretrained"):
            raise UserError(
                f"method {method!r} keeps the order of HEFT's upward rank; leave out the problem's "
                "order, or give another method"
            )
    limits = SearchLimits(time_limit_s, budget, observe, stop, starts=starts)
    return run(method, search, problem, seed, limits)


def check(method: str, objective: str) -> None:
    """Refuses a method that does not exist, is for other objectives, or has impossible arguments.

    Raises:
      UserError: one line.
    """
    if is_learned(method):
        from placement.methods import learned  # which reads this table

        learned.make(method, 2, False)
        return
    arguments.check_choice("method", method, METHODS)
    if objective not in METHODS[method].objectives:
        suitable = [name for name, m in of_kind("solver").items() if objective in m.objectives]
        raise UserError(
            f"method {method!r} is for objective {' or '.join(METHODS[method].objectives)}, not "
            f"{objective!r}; for {objective!r} there are {', '.join(suitable)}"
        )


def find(method: str, objective: str) -> base.Find:
    """Returns the search of a method, to whose name a learned one may add arguments.

    Raises:
      UserError: as `check`.
    """
    check(method, objective)
    if is_learned(method):
        from placement.methods import learned

        return functools.partial(learned.find, method)
    return functools.partial(METHODS[method].load(), **METHODS[method].options)


def entry(method: str) -> Method:
    """Returns the row of a method that exists, which may have arguments."""
    return METHODS[method.partition(":")[0]]


def is_learned(method: str) -> bool:
    """Whether a method's name, which may have arguments, is that of a learned one."""
    return method.partition(":")[0] in of_kind("learned")


def of_kind(*kinds: str) -> dict[str, Method]:
    """Returns the methods of some kinds, in the order of `METHODS`."""
    return {name: method for name, method in METHODS.items() if method.kind in kinds}


def register(name: str, recipe: "Recipe") -> None:
    """Adds a learned method, which every function and command then takes by its name.

    Args:
      name: an identifier that no method has.
      recipe: the policy, its training and its input, as at the end of each module of
        `placement.policies`. Registering the same recipe again changes nothing.

    Raises:
      UserError: the name is taken or no identifier.
    """
    if not name.isidentifier():
        raise UserError(f"{name!r} cannot name a method; use an identifier")
    row = Method("learned", recipe)
    if METHODS.setdefault(name, row) != row:
        raise UserError(f"there is a method {name!r} already; use another name")


def run(
    name: str, search: base.Find, problem: Problem, seed: int, limits: SearchLimits
) -> Solution:
    """Runs a search, computes the value of its placement and checks its bound.

    Args:
      name: of the search, for messages.
      search: the method's function.
      problem, seed: as of `solve`.
      limits: begun just now.
    """
    reason = solvers.infeasible(problem) or ""
    result = Solution(None, status=Status.INFEASIBLE)
    if not reason:
        result = search(problem, seed, limits)
    search_s = limits.elapsed_s()
    placement, status, value_s = result.placement, result.status, np.inf
    scheduled = problem.with_order(result.order)
    if status == Status.TIME_LIMIT and limits.is_stopped():
        status = Status.INTERRUPTED
    if placement is not None:
        placement = np.asarray(placement, np.int32)
        value_s = scheduled.value_s(placement)
        if np.isinf(value_s) and status == Status.OPTIMAL:
            status = Status.FINISHED
    if np.isinf(value_s) and limits.incumbent is not None and status != Status.INFEASIBLE:
        # Exact solvers know what operations always occupy, not copies of constants and not what is
        # alive over time. Their optimum may not fit where a placement that they reported does.
        placement, scheduled = np.asarray(limits.incumbent, np.int32), problem
        value_s, result = problem.value_s(placement), result._replace(order=None)
    bound_s = result.bound_s
    if not np.isnan(bound_s):
        rounding_s = base.bound_rounding(problem) * abs(bound_s)
        is_optimal = status == Status.OPTIMAL
        if value_s < bound_s - rounding_s:
            raise AssertionError(f"{name}: value {value_s} is below its bound {bound_s}")
        if is_optimal and value_s > bound_s + rounding_s:
            raise AssertionError(f"{name}: 'optimal' at {value_s}, but the bound is {bound_s}")
        # The value may be below the bound by rounding.
        bound_s = value_s if is_optimal else min(bound_s, value_s)
    if status == Status.INFEASIBLE:
        reason = reason or _PROVEN_INFEASIBLE[result.scope].format(name)
    elif np.isinf(value_s) and placement is not None and scheduled.exceeds_memory(placement):
        status, reason = Status.FAILED, OUT_OF_MEMORY
    elif np.isinf(value_s) and status != Status.INTERRUPTED:
        status, reason = Status.FAILED, f"{status}, no feasible placement found"
    if placement is None:  # something to show: each operation where it computes fastest
        placement = np.asarray(problem.costs.compute_s).argmin(axis=1).astype(np.int32)
    return result._replace(
        placement=placement,
        value_s=value_s,
        bound_s=bound_s,
        status=status,
        search_s=search_s,
        reason=reason,
    )


def single_device_placements(problem: Problem) -> np.ndarray:
    """Returns int32 [D, N]: all operations on each device, also where it cannot run them all."""
    num_ops, num_devices = problem.costs.compute_s.shape
    return np.tile(np.arange(num_devices, dtype=np.int32)[:, None], (1, num_ops))


def single(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Everything on one device: one row for each device."""
    placements = single_device_placements(problem)
    latency_s = np.asarray(problem.evaluate(placements))
    return Solution(placements[np.argmin(latency_s)], evaluations=len(placements))


METHODS: dict[str, Method] = {
    "hsdag": Method("learned", "policies.hsdag:RECIPE"),
    "hierarchical": Method("learned", "policies.hierarchical:RECIPE"),
    "colocrl": Method("learned", "policies.colocrl:RECIPE"),
    "placeto": Method("learned", "policies.placeto:RECIPE"),
    "giph": Method("learned", "policies.giph:RECIPE"),
    "doppler": Method("learned", "policies.doppler:RECIPE"),
    "group_moves": Method("learned", "policies.group_moves:RECIPE"),
    "scheduler": Method("learned", "policies.scheduler:RECIPE"),
    "search": Method("search", "search.multistart:search", options={"improve_order": True}),
    "single": Method("baseline", "methods:single", seeded=False),
    "hetero": Method("openvino", "methods.openvino:hetero", seeded=False),
    "hetero_pipeline": Method("openvino", "methods.openvino:hetero_pipeline", seeded=False),
    "human_expert": Method(
        "baseline", "solvers.heuristics.human_expert:human_expert", seeded=False
    ),
    "fill_in_order": Method("baseline", "solvers.heuristics.trivial:fill_in_order", seeded=False),
    "split_by_memory": Method(
        "baseline", "solvers.heuristics.trivial:split_by_memory", seeded=False
    ),
    "zero_shot": Method("pretrained", "methods.pretrained:find"),
    "metis": Method("partitioner", "solvers.heuristics.partition:metis", needs="pymetis"),
    "kahip": Method("partitioner", "solvers.heuristics.partition:kahip", needs="kahip"),
    "scotch": Method(
        "partitioner",
        "solvers.heuristics.partition:scotch",
        options={"gmap": scotch.run_gmap},
        needs="scotch",
    ),
    "min_cut": Method("partitioner", "solvers.heuristics.partition:min_cut", needs="pymetis"),
    "random": Method("solver", "solvers.heuristics.trivial:random"),
    "round_robin": Method("solver", "solvers.heuristics.trivial:round_robin", seeded=False),
    "topological": Method("solver", "solvers.heuristics.trivial:topological", seeded=False),
    "local_search": Method("solver", "solvers.heuristics.local_search:local_search"),
    "annealing": Method("solver", "solvers.heuristics.local_search:annealing"),
    "genetic": Method("solver", "solvers.heuristics.local_search:genetic"),
    "brute_force": Method(
        "solver", "solvers.heuristics.trivial:brute_force", proves=True, seeded=False
    ),
    "graph_cut": Method(
        "solver", "solvers.graph_cut:graph_cut", ("serial",), proves=True, seeded=False
    ),
    "ideals_dp": Method(
        "solver", "solvers.splits.ideals_dp:ideals_dp", ("max_load",), proves=True, seeded=False
    ),
    "dp_split": Method("solver", "solvers.splits.ideals_dp:dp_split", ("subgraph",), seeded=False),
    "linearised_dp": Method(
        "solver", "solvers.splits.ideals_dp:linearised_dp", ("max_load",), seeded=False
    ),
    "pipedream": Method(
        "solver", "solvers.splits.pipedream:pipedream", ("max_load",), seeded=False
    ),
    "milp": Method(
        "solver", "solvers.programs.program_search:milp", ("max_load", "subgraph"), proves=True
    ),
    "milp_noncontiguous": Method(
        "solver", "solvers.programs.program_search:milp_noncontiguous", ("max_load",), proves=True
    ),
    "cpsat": Method(
        "solver",
        "solvers.programs.program_search:cpsat",
        ("makespan", "max_load", "subgraph"),
        needs="ortools",
        proves=True,
    ),
    "cpsat_free": Method(
        "solver",
        "solvers.programs.program_search:cpsat_free",
        ("makespan",),
        needs="ortools",
        proves=True,
    ),
    "greedy": Method("solver", "solvers.heuristics.trivial:greedy", ("subgraph",), seeded=False),
    "heft": Method(
        "solver", "solvers.heuristics.list_scheduling:heft", ("makespan",), seeded=False
    ),
    "peft": Method(
        "solver", "solvers.heuristics.list_scheduling:peft", ("makespan",), seeded=False
    ),
    "m_topo": Method("solver", "solvers.heuristics.baechi:m_topo", ("makespan",), seeded=False),
    "m_etf": Method("solver", "solvers.heuristics.baechi:m_etf", ("makespan",), seeded=False),
    "m_sct": Method("solver", "solvers.heuristics.baechi:m_sct", ("makespan",), seeded=False),
    "lns": Method("solver", "search.multistart:lns", ("makespan",)),
    "diagram": Method(
        "solver", "solvers.diagrams.search:solve_diagram", ("makespan",), proves=True, seeded=False
    ),
}
