"""From a configuration to the objects of an experiment: the one place that wires everything."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement import arguments, files, simulators, zoo
from placement.costs import tables, workloads
from placement.errors import UserError
from placement.graphs import coarsen, opgraph, training
from placement.pipeline import graph_labels
from placement.pipeline.settings import Settings
from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment
from placement.runtime.measurement.request import Candidate
from placement.runtime.models import extract, frontend, operations
from placement.runtime.models import inputs as inputs_lib
from placement.runtime.models.inputs import Inputs
from placement.simulators import segments
from placement.types import CostModel, Evaluate, OpGraph, Problem
from placement.zoo import synthetic

EVALUATE = ("simulate", "measure", "simulate+verify")
MEASURE_ON = ("here", "ray")
SEEDS = 2**31  # fewer than some solvers take, and no other takes fewer
_NUM_REQUESTS = 2  # requests under way for each device of a pipeline
# What a graph's arguments say of its training step, and what they are where it has one.
_TRAINING: dict[str, arguments.Value] = {"training": 1, "optimiser": "adam", "colocate": True}


class Backend(NamedTuple):
    """How measured placements run."""

    summary: str
    objectives: tuple[str, ...]  # that predict it


BACKENDS = {
    "hetero": Backend("OpenVINO's HETERO: one submodel after another", ("serial",)),
    "concurrent": Backend(
        "a thread a device, submodels as soon as their inputs are there", ("makespan", "max_load")
    ),
}


class Network(NamedTuple):
    """A model and its graphs."""

    # ov.Model: static, folded, uniquely named; None of what no device here could run: a workload, a
    # synthetic graph, a training step
    model: Any
    graph: OpGraph  # as configured: the full view or the one without constants
    coarsening: coarsen.Coarsening
    estimated: dict[str, int]  # operation type -> operations whose FLOPs are an estimate
    workload: workloads.Workload | None = None  # with devices and costs of its own


class SearchProblem(NamedTuple):
    """What searches work on: the problem in full and coarsened, and its simulator."""

    full: Problem
    coarse: Problem
    assignment: np.ndarray  # int32 [N]: the coarse operation of each
    leaders: np.ndarray  # int32 [M]: the first of the coarse ones that each is co-located with
    simulate: Evaluate  # of coarse placements, complete or not

    def whole(self) -> "SearchProblem":
        """The same for placements that give every operation a device of its own."""
        everything = np.arange(self.full.graph.num_ops, dtype=np.int32)
        return SearchProblem(
            *(self.full, self.full, everything, everything),
            lambda p: simulators.evaluator(self.full)(p),
        )

    def complete(self, placements: np.ndarray) -> np.ndarray:
        """Placements int32 [K, M] of which co-located operations follow the first of them."""
        return np.asarray(placements, np.int32)[:, self.leaders]


def check(settings: Settings) -> None:
    """Refuses what no experiment can be run with, before anything is loaded.

    Raises:
      UserError: one line: what was given, what is valid.
    """
    arguments.check("objective", settings.objective, tuple(simulators.OBJECTIVES))
    arguments.check("evaluate", settings.evaluate, EVALUATE)
    arguments.check("measure_on", settings.measure_on, MEASURE_ON)
    arguments.check("backend", settings.backend, tuple(BACKENDS))
    for key in ("budget", "time_limit_s", "measure_s"):
        if not settings[key] > 0:
            raise UserError(f"{key}={settings[key]} leaves nothing to run; give {key} > 0")
    if settings.seed < 0 or settings.seed + max(settings.seeds, settings.members) > SEEDS:
        raise UserError(
            f"seed={settings.seed} is no seed, or those that follow it are none; give one from 0 on, "
            f"with all that follow it below {SEEDS}"
        )


def check_graph(graph: str) -> None:
    """Refuses a name that no network has, and a file that is not there, before any is loaded.

    Raises:
      UserError: one line: what was given, what is valid.
    """
    path = graph_labels.file(graph)
    if path is None:
        arguments.check("network", graph.partition(":")[0], (synthetic.NAME, *zoo.names()))
    elif not path.exists():
        raise UserError(f"no file {str(path)!r}; give the path of a model or of a workload")


def network(settings: Settings) -> Network:
    """Loads or builds the configured model, or reads the configured workload.

    Raises:
      UserError: no such graph, an unreadable file, dynamic inputs without shapes, a model that
        computes nothing.
    """
    path, given = _workload_file(settings.graph)
    if path is not None:
        return _workload(path, given, settings)
    text, step = _training_step(settings.graph)
    if text.split(":")[0] == synthetic.NAME:
        if step is not None:
            raise UserError(
                f"graph={settings.graph!r} has no weights to train; give a network of the zoo or a "
                "model's path with training=1"
            )
        graph = synthetic.build(text)
        return Network(None, graph, coarsen.coarsen(graph), {})
    model = frontend.prepare(_source(text, weights=step is None), settings.input_shapes)
    name = graph_labels.shortest(settings.graph)
    extraction = extract.op_graph(model, name=name, constants=settings.constants)
    if not operations.computed_names(model):
        raise UserError(
            f"graph={settings.graph!r} has no operation that a device could run; give a model that "
            "computes something of its inputs"
        )
    if step is not None:
        return _trained(extraction, step)
    return Network(model, extraction.graph, coarsen.coarsen(extraction.graph), extraction.estimated)


def inputs(settings: Settings, model: Any) -> Inputs:
    """Finds what the configured model is run with.

    Raises:
      UserError: `input_values` or `inputs` do not suit it.
    """
    values, file = settings.input_values, settings.inputs
    return inputs_lib.find(model, seed=settings.seed, values=values, file=file)


def without_weights(text: str, *, constants: bool = False) -> Network:
    """A network of the zoo, or a synthetic one, as a graph alone, without a model.

    Args:
      text: its name.
      constants: whether the graph has the constants, as `config.constants`.

    Raises:
      UserError: no such graph.
    """
    if text.split(":")[0] == synthetic.NAME:
        graph = synthetic.build(text)
    else:
        model = frontend.prepare(zoo.build(text, weights=False), "")
        graph = extract.op_graph(model, name=text, constants=constants).graph
    return Network(None, graph, coarsen.coarsen(graph), {})


def _workload_file(graph: str) -> tuple[Path | None, dict[str, str]]:
    """The path and arguments of 'FILE.json' or 'FILE.json:parts=2'; no path of another graph."""
    path, suffix, given = graph.partition(".json")
    if not suffix or given[:1] not in ("", ":"):
        return None, {}
    return Path(path + suffix), arguments.split(graph)[1] if given else {}


def _training_step(graph: str) -> tuple[str, dict[str, Any] | None]:
    """A graph without what it says of training, and that; None where no step is asked for."""
    name, rest = graph_labels.split(graph)
    given = arguments.split(rest)[1]
    asked = {key: value for key, value in given.items() if key in _TRAINING}
    if not asked:
        return graph, None
    values = arguments.values(graph, asked, _TRAINING, least={"training": 0})
    if values["training"] > 1 or "training" not in asked:
        raise UserError(
            f"graph {graph!r} gives {', '.join(asked)}; a step of training is training=1: give "
            "that beside, or leave all of them out"
        )
    others = ",".join(f"{key}={value}" for key, value in given.items() if key not in _TRAINING)
    return f"{name}:{others}" if others else name, values if values["training"] else None


def _trained(extraction: extract.Extraction, step: dict[str, Any]) -> Network:
    """The training step of a network, coarsened as the network would be."""
    network = extraction.graph
    trained = training.training(network, optimiser=step["optimiser"], colocate=step["colocate"])
    assignment = coarsen.coarsen(network).assignment
    coarsening = training.coarsened(trained, assignment)
    return Network(None, trained.graph, coarsening, extraction.estimated)


def _workload(path: Path, given: dict[str, str], settings: Settings) -> Network:
    """A workload file's graph is not coarsened: that would lose placements, and optima with them.

    Its co-located operations follow the first of them instead (`coarsen.lift` by representatives).
    """
    parts = arguments.values(settings.graph, given, {"parts": 1})["parts"]
    data = files.read_json(path, object, remedy="give a workload's file")
    read = workloads.from_json(data, name=path.stem, objective=settings.objective, parts=parts)
    graph = read.graph
    representatives = opgraph.representatives(graph)
    edges = np.arange(graph.num_edges, dtype=np.int32)
    return Network(None, graph, coarsen.Coarsening(graph, representatives, edges), {}, read)


def _source(graph: str, *, weights: bool) -> Any:  # ov.Model
    if graph_labels.file(graph) is None:
        return zoo.build(graph, weights=weights)
    return frontend.load(graph)


def search_problem(
    net: Network,
    costs: CostModel,
    devices: tuple[str, ...],
    objective: str,
) -> SearchProblem:
    """The problem that the searches of a run share."""
    coarsening = net.coarsening
    full = coarse = Problem(net.graph, costs, objective, devices)
    if coarsening.graph is not net.graph:
        coarse_costs = tables.coarse_costs(costs, coarsening.assignment, coarsening.edges)
        coarse = Problem(coarsening.graph, coarse_costs, objective, devices)
    leaders = opgraph.representatives(coarse.graph)
    simulate = simulators.evaluator(coarse)
    if (leaders == np.arange(len(leaders))).all():
        return SearchProblem(full, coarse, coarsening.assignment, leaders, simulate)
    return SearchProblem(
        full, coarse, coarsening.assignment, leaders, lambda p: simulate(p[..., leaders])
    )


def affinity(of: SearchProblem, placement: np.ndarray) -> dict[str, str]:
    """Operation name -> device name, of a coarse placement int32 [M]."""
    lifted = coarsen.lift(of.assignment, placement)
    return {
        name: of.full.devices[device]
        for name, device in zip(of.full.graph.op_names, lifted.tolist(), strict=True)
    }


def candidate(
    of: SearchProblem, placement: np.ndarray, devices: tuple[Device, ...], backend: str
) -> Candidate:
    """Makes the candidate that measures a coarse placement int32 [M]."""
    where = affinity(of, placement)
    if backend == "hetero" or not devices:
        return Candidate(where, devices)
    cut = segments.cut(of.coarse, placement)
    num_requests = _NUM_REQUESTS * len(devices) if of.coarse.objective == "max_load" else 1
    members = coarsen.members(of.full.graph, of.assignment)
    return Candidate(
        where,
        devices,
        tuple(
            Segment(devices[placement[ops[0]]].name, tuple(n for op in ops for n in members[op]))
            for ops in cut
        ),
        num_requests,
    )
