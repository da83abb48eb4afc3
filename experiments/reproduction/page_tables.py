"""The tables of the pages that runs stand behind, and the commands of the runs.

`experiments.reproduction.documents` runs the commands and writes the tables.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.reproduction import conclusions, worth_readers
from experiments.reproduction import table_readers as readers
from experiments.reproduction.server import NMT
from experiments.reproduction.table_readers import Grid
from placement.reporting.tables import comparison


class Table(NamedTuple):
    """A table of a page."""

    page: str
    # The command of each run, by the name of its work directory: the flags of experiments.main, or
    # another module with its arguments, which prints JSON.
    runs: dict[str, str]
    read: Callable[[Path], Grid]  # of the folder that the work directories are in
    needs: str = ""  # a file in that folder, of others


def _solving(kind: str, files: Mapping[str, tuple[str, ...]], more: str) -> dict[str, str]:
    folder = {"max_load": "throughput", "subgraph": "latency"}[kind]
    return {
        f"{kind}-{name}-{method}": (
            f"--config=solvers --task=solve --config.devices=auto --config.objective={kind} "
            f"--config.methods={method} --config.graph=workloads/{folder}/{name}.json {more}"
        )
        for name, methods in files.items()
        for method in methods
    }


_QUICK = "--config=quickstart"
# The recurrent networks in sizes of which an inference takes tens of milliseconds, not seconds.
_SMALL = "hidden=512,steps=10,vocabulary=4000"
_FIDELITY_OF = (
    *("bert_base", "inception_v3", "resnet50", "two_stream"),
    *(f"rnnlm:{_SMALL}", f"nmt:{_SMALL}"),
)
_FIDELITY = {
    f"fidelity-{graph.partition(':')[0]}": (
        f"{_QUICK} --task=profile --config.devices=host --config.graph={graph} "
        "--config.calibration_placements=24 --config.budget=100000"
    )
    for graph in _FIDELITY_OF
}
_DESKTOP = "roofline:desktop_cpu,igpu,npu"
_GAINS = {
    f"gains-{graph}-{devices.replace(':', '-')}": (
        f"{_QUICK} --config.graph={graph} --config.devices={devices}"
    )
    for graph, devices in (
        *(("inception_v3", "host:bf16,bf16"), ("two_stream", "host:bf16,bf16")),
        ("inception_v3", "host"),
    )
}
_WORTH = {
    f"advice-{graph.partition(':')[0]}-{devices.partition(':')[0]}": (graph, devices)
    for graphs, devices in (
        (tuple(_FIDELITY_OF), "host:bf16,bf16"),
        (("bert_base", "inception_v3", "resnet50", "two_stream", "rnnlm", "nmt"), _DESKTOP),
    )
    for graph in graphs
}
_ADVICE = {
    run: f"{_QUICK} --task=advise --config.devices={devices} --config.graph={graph}"
    for run, (graph, devices) in _WORTH.items()
}
_FRONTS = {
    f"front-{graph}": (
        f"{_QUICK} --task=front --config.devices=host:bf16,bf16 --config.graph={graph}"
    )
    for graph in ("inception_v3", "two_stream")
}
_STREAMS = {
    f"stream-{graph}": (
        f"{_QUICK} --config.objective=max_load --config.method=ideals_dp "
        f"--config.devices=host:bf16,bf16 --config.graph={graph}"
    )
    for graph in ("inception_v3", "two_stream")
}
_LIST = ("heft", "peft", "m_etf", "annealing", "genetic", "lns", "hsdag", "cpsat")
_SIMULATED = "--config=compare --task=compare --config.evaluate=simulate"
_LISTS = {
    f"list-{count}": (
        f"{_SIMULATED} --config.methods={','.join(_LIST)} "
        "--config.graphs=inception_v3,rnnlm,nmt:layers=2 --config.objective=makespan "
        f"--config.devices=roofline:cpu{',gpu' * count} --config.time_limit_s=45"
    )
    for count in (2, 4)
}
_SERIAL_METHODS = ("hsdag", "hierarchical", "local_search")
_SERIAL = {
    "serial-described": (
        f"{_SIMULATED} --config.methods=graph_cut,{','.join(_SERIAL_METHODS)} "
        "--config.graphs=inception_v3,resnet50,bert_base --config.devices=roofline:igpu,npu"
    ),
    "serial-host": (
        f"{_SIMULATED} --config.methods=graph_cut,{','.join(_SERIAL_METHODS)} "
        "--config.graphs=inception_v3,resnet50 --config.devices=host"
    ),
}
_AUDIT = "--config=audit --task=compare"
_SYNTHETIC = [f"synthetic:family={f},ops=300" for f in ("layered", "series_parallel")]
_WITH_ROOM = ",".join(["rnnlm", "nmt:layers=2", *_SYNTHETIC])
_PAPER = "hsdag:variant=paper"
_OTHERS = "hierarchical,colocrl,placeto,search,lns"
_AUDITS = {
    "audit": (
        "hsdag",
        f"{_AUDIT} --config.graphs={_WITH_ROOM},inception_v3 --config.seeds=2 "
        f"--config.budget=8000 --config.time_limit_s=120 --config.methods={_PAPER},hsdag,"
        f"hsdag:variant=untrained,hierarchical:slices=0,scheduler,{_OTHERS},"
        "heft,peft,m_etf,cpsat,human_expert,metis,scotch",
    ),
    "audit_wall": (
        "hsdag",
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=2 --config.budget=1000000000 "
        "--config.time_limit_s=30 --config.methods=hsdag:variant=released,"
        f"hsdag:variant=released,faults=0,{_PAPER},hsdag,hsdag:variant=untrained,{_OTHERS}",
    ),
    "audit_long": (
        "hsdag",
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=4 --config.budget=32000 "
        "--config.methods=hsdag,hsdag:variant=untrained,search,lns,heft",
    ),
    "ablation": (
        _PAPER,
        f"{_AUDIT} --config.graphs={','.join(_SYNTHETIC)} --config.seeds=3 --config.budget=8000 "
        f"--config.methods={_PAPER},{_PAPER},features=op_type+degrees+fractal+positional,"
        f"{_PAPER},features=op_type+degrees+fractal+output_shape,"
        f"{_PAPER},features=op_type+output_shape",
    ),
}
_UNTRAINED = "hsdag:variant=untrained"
_ROLES = "hierarchical:grouping=roles,num_groups=128"
_QUESTIONS = {
    "specifications": (
        (_UNTRAINED, "scheduler"),
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=3 --config.budget=2000 "
        f"--config.methods={_UNTRAINED},{_UNTRAINED},specifications=False,"
        "scheduler,scheduler:specifications=False",
    ),
    "readers": (
        ("hierarchical",),
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=3 --config.budget=2000 "
        "--config.methods=hierarchical:num_readers=1,hierarchical,hierarchical:num_readers=32",
    ),
    "roles_planner": (
        ("hierarchical",),
        f"{_AUDIT} --config.graphs=rnnlm,nmt:layers=2 --config.seeds=2 --config.budget=2000 "
        f"--config.methods=hierarchical,{_ROLES},{_ROLES},roles=neighbours,human_expert",
    ),
}
_REPRODUCED = "--config=reproduce_hierarchical --task=compare"
_PLANNER = {"hierarchical": _REPRODUCED} | {
    f"hierarchical-{count}": (
        f"{_REPRODUCED} --config.devices=roofline:server_cpu{',server_gpu' * count} "
        f"--config.graphs=nmt:layers={count},{NMT},training=1"
    )
    for count in (4, 8)
}
# With eight GPUs `cpsat` refuses: its program would take more memory than this machine has.
_EXACT = {
    f"{name}-exact": f"{_PLANNER[name]} --config.methods=cpsat --config.seeds=1"
    for name in ("hierarchical", "hierarchical-4")
}
_BOUNDS = ("bound", "gap of the best")
_PROOFS = {
    "layer_bert24_inference": ("ideals_dp", "cpsat"),
    "layer_gnmt_inference": ("ideals_dp", "cpsat"),
    "layer_resnet50_inference": ("ideals_dp",),
    "layer_resnet50_training": ("ideals_dp",),
    "operator_bert3_inference": ("ideals_dp", "cpsat"),
    "operator_bert3_training": ("ideals_dp",),
}
_PATHS = {
    name: ("greedy", "cpsat")
    for name in ("layer_bert24_inference", "layer_gnmt_inference", "operator_bert3_inference")
}
_SIZES = {f"scale-{size}": f"experiments.benchmarks.scale {size}" for size in (10_000, 100_000)}
_POLICY = "../../placement/methods/pretrained/policy.msgpack"  # from the folder of the runs
_UNSEEN = {"unseen": f"experiments.benchmarks.unseen {_POLICY}"}
TABLES = {
    "quickstart": Table(
        "README.md", {"quickstart": _QUICK}, readers.reported("quickstart", "status")
    ),
    "tutorial": Table(
        "docs/TUTORIAL.md",
        {"tutorial": f"{_QUICK} --config.graph=model.onnx"},
        readers.reported("tutorial", "status"),
    ),
    "concurrent_fidelity": Table("docs/CONCURRENT.md", _FIDELITY, readers.fidelity(_FIDELITY)),
    "verdicts": Table(
        "docs/CONCURRENT.md",
        _ADVICE,
        worth_readers.verdicts(
            {run: devices for run, (_, devices) in _WORTH.items()},
            ("serial", "makespan", "max_load"),
        ),
    ),
    "fronts": Table("docs/CONCURRENT.md", _FRONTS, worth_readers.fronts(tuple(_FRONTS))),
    "streams": Table("docs/CONCURRENT.md", _STREAMS, readers.gains(_STREAMS, "ideals_dp")),
    "concurrent_gains": Table("docs/CONCURRENT.md", _GAINS, readers.gains(_GAINS, "search")),
    "solvers_max_load": Table(
        "docs/SOLVERS.md",
        _solving("max_load", _PROOFS, "--config.time_limit_s=100"),
        readers.solved("max_load", _PROOFS),
        needs="workloads/throughput",
    ),
    "solvers_subgraph": Table(
        "docs/SOLVERS.md",
        _solving("subgraph", _PATHS, "--config.time_limit_s=280"),
        readers.solved("subgraph", _PATHS),
        needs="workloads/latency",
    ),
    "solvers_makespan": Table(
        "docs/SOLVERS.md",
        _LISTS,
        readers.by_method(_LISTS, {"list-2": "2", "list-4": "4"}, "GPUs", _LIST),
    ),
    "solvers_serial": Table(
        "docs/SOLVERS.md", _SERIAL, readers.gaps(_SERIAL, "graph_cut", _SERIAL_METHODS)
    ),
    "methods": Table("README.md", {"audit": _AUDITS["audit"][1]}, readers.ranking("audit")),
    "rooms": Table("docs/REPRODUCTION.md", {"audit": _AUDITS["audit"][1]}, readers.rooms("audit")),
    **{
        name: Table("docs/REPRODUCTION.md", {name: command}, readers.scores(name, against))
        for name, (against, command) in _AUDITS.items()
    },
    "hierarchical": Table(
        "docs/REPRODUCTION.md", _PLANNER | _EXACT, readers.merged(*_PLANNER, *_EXACT)
    ),
    **{
        f"published_{name}": Table(
            "docs/REPRODUCTION.md",
            _PLANNER,
            readers.published(table, reference, *_PLANNER),
        )
        for name, table, reference in (
            ("planner", "hierarchical_planner", comparison.SINGLE),
            ("planner_expert", "hierarchical_planner", "human_expert"),
            ("random_groups", "hierarchical_random_groups", comparison.SINGLE),
        )
    },
    "conclusions": Table(
        "docs/REPRODUCTION.md",
        _PLANNER,
        lambda folder: conclusions.read(folder, tuple(_PLANNER)),
    ),
    "hsdag": Table(
        "docs/REPRODUCTION.md",
        {"hsdag": "--config=reproduce_hsdag --task=compare"},
        readers.reported("hsdag", "reduction", without=_BOUNDS),
    ),
    **{
        name: Table("docs/QUESTIONS.md", {name: command}, readers.scores(name, *against))
        for name, (against, command) in _QUESTIONS.items()
    },
    "roles_search": Table(
        "docs/QUESTIONS.md",
        {"roles_search": "experiments.reproduction.questions roles"},
        readers.roles_of_search,
    ),
    "objectives": Table(
        "docs/QUESTIONS.md",
        {"objectives": "experiments.reproduction.questions objectives"},
        readers.objectives,
    ),
    "scale": Table("docs/SCALE.md", _SIZES, readers.phases(_SIZES)),
    "gaps": Table(
        "docs/SOLVERS.md", {"gaps": "experiments.benchmarks.gaps"}, readers.gaps_by_family
    ),
    "unseen_devices": Table("docs/PRETRAINING.md", _UNSEEN, readers.unseen_by_devices),
    "unseen_families": Table("docs/PRETRAINING.md", _UNSEEN, readers.unseen_by_family),
}
