"""The objects of an experiment, made from its settings: networks, problems and candidates."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement import arguments, files, methods, simulators, zoo
from placement.analysis import segments
from placement.costs import tables, workloads
from placement.errors import UserError
from placement.graphs import coarsen, dag
from placement.graphs import constants as constants_lib
from placement.pipeline import graph_labels
from placement.pipeline.settings import Settings
from placement.problem import Problem
from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.evaluate import MeasuredEvaluate, MeasurementCache
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate
from placement.runtime.models import colocation, extract, frontend, operations
from placement.runtime.models import inputs as inputs_lib
from placement.runtime.models.inputs import Inputs
from placement.solvers.limits import START_KINDS
from placement.types import CostModel, OpGraph
from placement.zoo import synthetic

EVALUATE = ("simulate", "measure", "simulate+verify")
_REQUESTS_PER_DEVICE = 2  # under way at the same time in a pipeline
# The arguments of a graph that ask for its training step, with their defaults.
_TRAINING: dict[str, arguments.Value] = {"training": 1, "optimiser": "adam", "colocate": True}


class Backend(NamedTuple):
    """A way to run measured placements."""

    summary: str
    objectives: tuple[str, ...]  # that predict it


BACKENDS = {
    "hetero": Backend("OpenVINO's HETERO: one submodel after another", ("serial",)),
    "concurrent": Backend(
        "a thread a device, submodels as soon as their inputs are there", ("makespan", "max_load")
    ),
}


class Network(NamedTuple):
    """A model of N operations, and the K decisions of its placements.

    Operations are decided together if they are merged (`graphs.coarsen`) or co-located.
    """

    # ov.Model: static, folded, with unique names. None if no device here could run it: a workload,
    # a synthetic graph or a training step.
    model: Any
    graph: OpGraph  # with or without constants, as configured
    coarsening: coarsen.Coarsening
    estimated: dict[str, int]  # operation type -> number of operations whose FLOPs are estimated
    workload: workloads.Workload | None = None  # has its own devices and costs

    @property
    def optimum(self) -> workloads.Optimum | None:
        """The known optimum of a workload; None where none is known."""
        return self.workload.optimum if self.workload is not None else None

    @property
    def decision(self) -> np.ndarray:
        """int32 [N]: the decision that places each operation."""
        colocation = self.coarsening.graph.colocation
        return dag.number_by_first(colocation)[self.coarsening.assignment]

    @property
    def members(self) -> list[list[str]]:
        """The names of the operations that are merged into each of the problem's, in order.

        In the problem of a model these are decisions: coarsening leaves no co-location.
        """
        return coarsen.list_member_names(self.graph, self.coarsening.assignment)

    def affinity(self, devices: Sequence[str], placement: np.ndarray) -> dict[str, str]:
        """Returns the device's name for each operation's name, for a placement int32 [K]."""
        op_devices = placement[self.decision].tolist()
        return {n: devices[d] for n, d in zip(self.graph.op_names, op_devices, strict=True)}


def remove_variable_cycles(net: Network, problem: Problem, placements: np.ndarray) -> np.ndarray:
    """Returns distinct placements int32 [B, K] whose variables HETERO runs correctly.

    A part is a connected set of operations on one device. If a part depends on itself through
    another device, HETERO splits it, and could then read a variable in another submodel than
    the one that writes it (`placement.runtime.execution.hetero`). So all parts on a cycle with
    a variable move to the device that computes them fastest. This can close new cycles, but
    each repetition leaves fewer parts. A placement stays as it is if no device supports all
    operations of a cycle.
    """
    graph, decision = net.graph, net.decision
    writers = np.flatnonzero(np.array(graph.op_types) == "Assign")
    distinct: dict[bytes, np.ndarray] = {}
    for placement in placements:
        result = placement.copy()
        while len(writers):
            parts = dag.connected_parts(graph, result[decision])
            ends = dag.quotient(graph.senders, graph.receivers, parts)
            cycles = dag.components("strong", int(parts.max()) + 1, *ends)
            sizes = np.bincount(cycles)
            cyclic = [cycle for cycle in np.unique(cycles[parts[writers]]) if sizes[cycle] > 1]
            if not cyclic:
                break
            members = np.unique(decision[cycles[parts] == cyclic[0]])
            total_s = problem.decisions.compute_s[members].sum(axis=0)  # [D]
            if not np.isfinite(total_s).any():
                result = placement
                break
            result[members] = total_s.argmin()
        distinct[result.tobytes()] = result
    return np.array(list(distinct.values()))


def check_settings(settings: Settings) -> None:
    """Raises a UserError for invalid settings that can be judged before anything is loaded."""
    arguments.check_choice("objective", settings.objective, tuple(simulators.OBJECTIVES))
    arguments.check_choice("evaluate", settings.evaluate, EVALUATE)
    arguments.check_choice("measure_on", settings.measure_on, ("here", "ray"))
    arguments.check_choice("backend", settings.backend, tuple(BACKENDS))
    arguments.check_choice("starts", settings.starts, START_KINDS)
    for key in ("budget", "time_limit_s", "measure_s"):
        if not (value := getattr(settings, key)) > 0:
            raise UserError(f"{key}={value} leaves nothing to run; set {key} > 0")
    arguments.check_range("max_error", settings.max_error, 0)
    arguments.check_range("seeds", settings.seeds, 1)
    # Some solvers take no larger seed.
    last_seed = 2**31 - max(settings.seeds, settings.members)
    arguments.check_range("seed", settings.seed, 0, last_seed)


def check_graph(graph: str) -> None:
    """Raises a UserError unless a graph's network or file exists, before any is loaded."""
    path = graph_labels.file(graph)
    if path is None:
        arguments.check_choice("network", graph.partition(":")[0], (synthetic.NAME, *zoo.names()))
    elif not path.exists():
        raise UserError(f"no file {str(path)!r}; pass the path of a model or of a workload")


def load_network(settings: Settings) -> Network:
    """Loads or builds the configured model, or reads the configured workload.

    Raises:
      UserError: the graph does not exist, a file cannot be read, a dynamic input has no shape, or
        the model computes nothing.
    """
    path, suffix, rest = settings.graph.partition(".json")
    if suffix and rest[:1] in ("", ":"):  # 'FILE.json' or 'FILE.json:parts=2'
        values = arguments.split_arguments(settings.graph)[1] if rest else {}
        parts = arguments.convert_arguments(settings.graph, values, {"parts": 1})["parts"]
        name, objective = Path(path).name, settings.objective
        read = functools.partial(workloads.from_json, name=name, objective=objective, parts=parts)
        remedy = "pass the file of a workload"
        return _make_workload_network(files.read_json(path + suffix, object, read, remedy=remedy))
    name, step = _split_training(settings.graph)
    if name.split(":")[0] == synthetic.NAME:
        if step is not None:
            raise UserError(
                f"graph={settings.graph!r} has no weights to train; use a network of the zoo or a "
                "model's path with training=1"
            )
        workload = synthetic.build_workload(name)
        has_optimum = workload is not None and workload.optimum is not None
        if has_optimum and settings.objective != "makespan":
            raise UserError(
                f"graph={settings.graph!r} has a known optimum under objective 'makespan', not "
                f"{settings.objective!r}; set objective='makespan'"
            )
        return build_graph_network(name) if workload is None else _make_workload_network(workload)
    model = frontend.prepare(_read_source(name, weights=step is None), settings.input_shapes)
    label = graph_labels.shortest(settings.graph)
    extraction = extract.op_graph(model, name=label, constants=settings.constants)
    if not operations.computed_names(model):
        raise UserError(
            f"graph={settings.graph!r} has no operation that a device could run; use a model that "
            "computes something of its inputs"
        )
    if step is None:
        graph = constants_lib.copy_to_readers(extraction.graph)
        return Network(model, graph, coarsen.coarsen(graph), extraction.estimated)
    from placement.graphs import training

    # The step is coarsened like the network whose weights cross.
    assignment = coarsen.coarsen(extraction.graph).assignment
    trained = training.make_training_graph(
        extraction.graph, optimiser=step["optimiser"], colocate=step["colocate"]
    )
    coarsening = training.coarsen_training_graph(trained, assignment)
    return Network(None, trained.graph, coarsening, extraction.estimated)


def _read_source(graph: str, *, weights: bool = True) -> Any:  # ov.Model
    """Builds a network of the zoo, with or without weights, or reads a model's file."""
    if graph_labels.file(graph) is None:
        return zoo.build(graph, weights=weights)
    return frontend.load(graph)


def load_dynamic(settings: Settings) -> Any:  # ov.Model | None
    """Returns the model with its dynamic inputs, all operations named; None if it is static."""
    source = _read_source(settings.graph)
    model = frontend.name_operations(source)
    is_dynamic = any(port.get_partial_shape().is_dynamic for port in model.inputs)
    return model if is_dynamic else None


def require_model(net: Network, graph: str) -> Any:  # ov.Model
    """Returns the model of a network; a UserError where there is none that a device could run."""
    if net.model is None:
        raise UserError(
            f"graph={graph!r} is not a model that a device could run; set a model's file, or "
            "describe devices, such as devices='roofline:cpu,gpu,gpu'"
        )
    return net.model


def refuse_stateful_stream(settings: Settings, net: Network) -> None:
    """Raises a UserError where a model with a state is to serve a stream of requests."""
    if (
        settings.objective == "max_load"
        and net.model is not None
        and colocation.is_stateful(net.model)
    ):
        raise UserError(
            f"graph={settings.graph!r} keeps a state from one inference to the next, which the "
            "simultaneous requests of objective='max_load' would mix; set "
            "objective='serial' or 'makespan'"
        )


def inputs(settings: Settings, model: Any) -> Inputs:
    """Loads or draws the inputs of a model; a UserError if the settings do not suit it."""
    values, file = settings.input_values, settings.inputs
    return inputs_lib.load_inputs(
        model, seed=settings.seed, values=values, file=file, max_error=settings.max_error
    )


def build_graph_network(text: str, *, constants: bool = False) -> Network:
    """Builds only the graph of a zoo network or synthetic graph by name, without a model to run.

    `constants` is as `Settings.constants`. An unknown name is a UserError.
    """
    if text.split(":")[0] == synthetic.NAME:
        graph = synthetic.build(text)
    else:
        graph = constants_lib.copy_to_readers(extract_zoo_graph(text, constants=constants))
    return Network(None, graph, coarsen.coarsen(graph), {})


def extract_zoo_graph(text: str, *, constants: bool) -> OpGraph:
    """Extracts the graph of a zoo network, with an edge from each constant to each reader."""
    model = frontend.prepare(zoo.build(text, weights=False), "")
    return extract.op_graph(model, name=text, constants=constants).graph


def _split_training(graph: str) -> tuple[str, dict[str, Any] | None]:
    """Splits a graph's arguments: the graph without those of training, and those, if any."""
    name, rest = arguments.split_name(graph)
    values = arguments.split_arguments(rest)[1]
    step_values = {key: value for key, value in values.items() if key in _TRAINING}
    if not step_values:
        return graph, None
    step = arguments.convert_arguments(graph, step_values, _TRAINING, minimums={"training": 0})
    if step["training"] > 1 or "training" not in step_values:
        raise UserError(
            f"graph {graph!r} gives {', '.join(step_values)}; a step of training is training=1: "
            "add that, or leave all of them out"
        )
    rest = ",".join(f"{key}={value}" for key, value in values.items() if key not in _TRAINING)
    return f"{name}:{rest}" if rest else name, step if step["training"] else None


def _make_workload_network(workload: workloads.Workload) -> Network:
    """Makes the network of a workload without coarsening it, which would lose placements."""
    graph = workload.graph
    ops, edges = (np.arange(n, dtype=np.int32) for n in (graph.num_ops, graph.num_edges))
    return Network(None, graph, coarsen.Coarsening(graph, ops, edges), {}, workload)


def make_problem(
    net: Network, costs: CostModel, devices: tuple[str, ...], objective: str
) -> Problem:
    """Makes the problem of a run: operations have the costs of all that are merged into each."""
    coarsening = net.coarsening
    if coarsening.graph is not net.graph:
        costs = tables.coarse_costs(costs, coarsening.assignment, coarsening.edges)
    return Problem(coarsening.graph, costs, objective, devices)


def make_candidate(
    net: Network,
    problem: Problem,
    placement: np.ndarray,
    devices: tuple[Device, ...],
    backend: str,
) -> Candidate:
    """Makes the candidate that measures a placement int32 [K] on devices."""
    affinity = net.affinity(problem.devices, placement)
    if backend == "hetero" or not devices:
        return Candidate(affinity, devices)
    num_requests = _REQUESTS_PER_DEVICE * len(devices) if problem.objective == "max_load" else 1
    members, op_devices = net.members, problem.expand(placement)
    submodels = tuple(
        Segment(devices[op_devices[ops[0]]].name, tuple(n for op in ops for n in members[op]))
        for ops in segments.cut(problem, placement)
    )
    return Candidate(affinity, devices, submodels, num_requests)


def make_measured_evaluate(
    settings: Settings, net: Network, problem: Problem, measurer: Measurer, workdir: Path
) -> MeasuredEvaluate | None:
    """Returns the function that measures placements int32 [B, K]; None if no baseline fits.

    Placements are compared with everything on the first device, or with `fill_in_order` where that
    needs too much memory.
    """
    baseline = np.zeros(problem.num_decisions, np.int32)
    if problem.exceeds_memory(baseline):
        solution = methods.solve(problem, "fill_in_order")
        if not np.isfinite(solution.value_s):
            return None
        assert solution.placement is not None
        baseline = solution.placement
    return MeasuredEvaluate(
        measurer,
        baseline,
        lambda placement: make_candidate(
            net, problem, placement, measurer.devices, settings.backend
        ),
        MeasurementCache(workdir / "measurements.jsonl"),
        compile_s=settings.time_limit_s,
    )
