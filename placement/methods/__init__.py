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
from placement.solvers.limits import START_KINDS, Observe, SearchLimits
from placement.types import OUT_OF_MEMORY, Solution, Status

if TYPE_CHECKING:
    from placement.policies.base import Recipe

ALL_OBJECTIVES = tuple(simulators.OBJECTIVES)


class Method(NamedTuple):
    """One way to place a problem; its module is imported when it is used or described."""

    name: str
    # 'learned', 'pretrained', 'openvino', 'search', 'baseline', 'partitioner' or 'solver'
    kind: str
    # The module of its `base.Find`, a function of the method's name; of a learned method, that of
    # its `RECIPE`. Or one of these themselves.
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
        module = importlib.import_module(f"placement.{self.source}")
        return getattr(module, "RECIPE" if self.kind == "learned" else self.name)

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
    observe: Observe = lambda *step: None,
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
        the best value, the best placement int [K], and other numbers by name. The value is inf and
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

        learned.make(method, 2)
        return
    arguments.check_choice("method", method, METHODS)
    if objective not in METHODS[method].objectives:
        suitable = [name for name, m in of_kind("solver").items() if objective in m.objectives]
        raise UserError(
            f"method {method!r} is for objective {' or '.join(METHODS[method].objectives)}, not "
            f"{objective!r}; for {objective!r} there are {', '.join(suitable)}"
        )


def find(method: str, objective: str, **given: Any) -> base.Find:
    """Returns the search of a method, to whose name a learned one may add arguments.

    Args:
      method, objective: the method, and the objective that it has to minimise.
      **given: keywords of its function, such as the devices of an 'openvino' method.

    Raises:
      UserError: as `check`.
    """
    check(method, objective)
    if is_learned(method):
        from placement.methods import learned

        return functools.partial(learned.find, method)
    return functools.partial(METHODS[method].load(), **METHODS[method].options, **given)


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
    row = Method(name, "learned", recipe)
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
        reason = result.reason
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
        kind = "contiguous placement" if result.scope == base.CONTIGUOUS else "placement"
        reason = reason or f"no {kind} keeps all limits, as {name} proved"
    elif np.isinf(value_s) and placement is not None and scheduled.exceeds_memory(placement):
        status, reason = Status.FAILED, OUT_OF_MEMORY
    elif np.isinf(value_s) and status != Status.INTERRUPTED:
        status, reason = Status.FAILED, f"{status}, no feasible placement found"
    if placement is None:  # something to show: each decision for the device that computes fastest
        placement = problem.decisions.compute_s.argmin(axis=1).astype(np.int32)
    return result._replace(
        placement=placement,
        value_s=value_s,
        bound_s=bound_s,
        status=status,
        search_s=search_s,
        reason=reason,
    )


def single_device_placements(problem: Problem) -> np.ndarray:
    """Returns int32 [D, K]: everything on each device, also where it cannot run everything."""
    num_decisions, num_devices = problem.decisions.compute_s.shape
    return np.tile(np.arange(num_devices, dtype=np.int32)[:, None], (1, num_decisions))


def single(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Everything on one device: one row for each device."""
    placements = single_device_placements(problem)
    latency_s = np.asarray(problem.evaluate(placements))
    return Solution(placements[np.argmin(latency_s)], evaluations=len(placements))


_PARTITION, _PROGRAMS = "solvers.heuristics.partition", "solvers.programs.program_search"
_ROWS = (
    Method("hsdag", "learned", "policies.hsdag"),
    Method("hierarchical", "learned", "policies.hierarchical"),
    Method("colocrl", "learned", "policies.colocrl"),
    Method("placeto", "learned", "policies.placeto"),
    Method("giph", "learned", "policies.giph"),
    Method("doppler", "learned", "policies.doppler"),
    Method("scheduler", "learned", "policies.scheduler"),
    Method("search", "search", "search.multistart", options={"improve_order": True}),
    Method("single", "baseline", "methods", seeded=False),
    Method("hetero", "openvino", "methods.openvino_choice", seeded=False),
    Method("hetero_pipeline", "openvino", "methods.openvino_choice", seeded=False),
    Method("human_expert", "baseline", "solvers.heuristics.human_expert", seeded=False),
    Method("fill_in_order", "baseline", "solvers.heuristics.trivial", seeded=False),
    Method("split_by_memory", "baseline", "solvers.heuristics.trivial", seeded=False),
    Method("zero_shot", "pretrained", "methods.pretrained"),
    Method("metis", "partitioner", _PARTITION, needs="pymetis"),
    Method("scotch", "partitioner", _PARTITION, options={"gmap": scotch.run_gmap}, needs="scotch"),
    Method("min_cut", "partitioner", _PARTITION, needs="pymetis"),
    Method("random", "solver", "solvers.heuristics.trivial"),
    Method("round_robin", "solver", "solvers.heuristics.trivial", seeded=False),
    Method("topological", "solver", "solvers.heuristics.trivial", seeded=False),
    Method("local_search", "solver", "solvers.heuristics.local_search"),
    Method("annealing", "solver", "solvers.heuristics.local_search"),
    Method("genetic", "solver", "solvers.heuristics.local_search"),
    Method("brute_force", "solver", "solvers.heuristics.trivial", proves=True, seeded=False),
    Method("graph_cut", "solver", "solvers.graph_cut", ("serial",), proves=True, seeded=False),
    Method(
        "ideals_dp", "solver", "solvers.splits.ideals_dp", ("max_load",), proves=True, seeded=False
    ),
    Method("dp_split", "solver", "solvers.splits.ideals_dp", ("subgraph",), seeded=False),
    Method("linearised_dp", "solver", "solvers.splits.ideals_dp", ("max_load",), seeded=False),
    Method("pipedream", "solver", "solvers.splits.pipedream", ("max_load",), seeded=False),
    Method("milp", "solver", _PROGRAMS, ("max_load", "subgraph"), proves=True),
    Method("milp_noncontiguous", "solver", _PROGRAMS, ("max_load",), proves=True),
    Method(
        "cpsat",
        "solver",
        _PROGRAMS,
        ("makespan", "max_load", "subgraph"),
        needs="ortools",
        proves=True,
    ),
    Method("cpsat_free", "solver", _PROGRAMS, ("makespan",), needs="ortools", proves=True),
    Method("greedy", "solver", "solvers.heuristics.trivial", ("subgraph",), seeded=False),
    Method("heft", "solver", "solvers.heuristics.list_scheduling", ("makespan",), seeded=False),
    Method("peft", "solver", "solvers.heuristics.list_scheduling", ("makespan",), seeded=False),
    Method("m_topo", "solver", "solvers.heuristics.baechi", ("makespan",), seeded=False),
    Method("m_etf", "solver", "solvers.heuristics.baechi", ("makespan",), seeded=False),
    Method("lns", "solver", "search.multistart", ("makespan",)),
    Method(
        "diagram", "solver", "solvers.diagrams.search", ("makespan",), proves=True, seeded=False
    ),
)
METHODS: dict[str, Method] = {row.name: row for row in _ROWS}
