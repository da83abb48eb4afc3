"""The tables of the pages, and the commands of the runs that each table is made from.

`python -m experiments.reproduction` runs the commands and writes the tables.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.audit import tables as audit
from experiments.benchmarks import scale
from experiments.benchmarks.proposals import HEADER, MOVES_HEADER
from experiments.reproduction import conclusions
from experiments.reproduction import table_readers as readers
from experiments.reproduction.server import NMT
from experiments.reproduction.table_readers import Grid


class Table(NamedTuple):
    """A table of a page."""

    page: str
    # The command of each run, by the run's name: the flags of experiments.main, or another module
    # with its arguments, which prints JSON.
    runs: dict[str, str]
    read: Callable[[Path], Grid]  # from the folder of all runs
    needed_path: str = ""  # in that folder: files of others that the runs read


def _workload_commands(
    objective: str, methods_by_file: Mapping[str, tuple[str, ...]], flags: str
) -> dict[str, str]:
    folder = {"max_load": "throughput", "subgraph": "latency"}[objective]
    return {
        f"{objective}-{name}-{method}": (
            f"--config=solvers --task=solve --config.devices=auto --config.objective={objective} "
            f"--config.methods={method} --config.graph=workloads/{folder}/{name}.json {flags}"
        )
        for name, methods in methods_by_file.items()
        for method in methods
    }


def _read_audit(folder: Path, name: str) -> Grid:
    """Reads a table of the stored runs of the audit, which need no other folder."""
    del folder
    return audit.make_tables(audit.read_stored())[name]


_AUDIT_TABLES = "", "_families", "_pairs", "_parts", "_conclusions", "_newest", "_sharded"
_QUICK = "--config=quickstart"
# The recurrent networks are made small: an inference takes tens of milliseconds, not seconds.
_SMALL = "hidden=512,steps=10,vocabulary=4000"
_BRANCHED = "inception_v3", "two_stream", f"rnnlm:{_SMALL}", f"nmt:{_SMALL}"
# Two equal devices, which every machine with two cores has.
_TWO_CORES = "host:f32,f32"
_FIDELITY = {
    f"fidelity-{graph.partition(':')[0]}": (
        f"{_QUICK} --task=profile --config.devices={_TWO_CORES} --config.graph={graph} "
        "--config.calibration_placements=24 --config.budget=100000 --config.time_limit_s=600"
    )
    for graph in _BRANCHED
}
_DESKTOP = "roofline:desktop_cpu,igpu,npu"
_GAINS = {
    f"gains-{graph.partition(':')[0]}": (
        f"{_QUICK} --config.graph={graph} --config.devices={_TWO_CORES}"
    )
    for graph in _BRANCHED
}
_ADVICE_CASES = {
    f"advice-{graph.partition(':')[0]}-{devices.partition(':')[0]}": (graph, devices)
    for graphs, devices in (
        (("bert_base", "resnet50", *_BRANCHED), _TWO_CORES),
        (("bert_base", "resnet50", "inception_v3", "two_stream", "rnnlm", "nmt"), _DESKTOP),
    )
    for graph in graphs
}
_ADVICE = {
    run: f"{_QUICK} --task=advise --config.devices={devices} --config.graph={graph}"
    for run, (graph, devices) in _ADVICE_CASES.items()
}
_STREAMS = {
    f"stream-{graph}": (
        f"{_QUICK} --config.objective=max_load --config.method=ideals_dp "
        f"--config.devices={_TWO_CORES} --config.graph={graph}"
    )
    for graph in ("inception_v3", "two_stream")
}
_PRECISIONS = {
    f"precisions-{graph}": (
        f"--config.graph={graph} --config.devices=precisions --config.backend=hetero "
        "--config.objective=serial --config.method=graph_cut --config.max_error=0.01 "
        "--config.measure_s=10"
    )
    for graph in ("resnet50", "inception_v3", "two_stream", "bert_base")
}
_SIMULATED = "--config=compare --task=compare --config.evaluate=simulate"
_SERIAL_METHODS = ("hsdag", "hierarchical", "local_search")
_SERIAL = {
    "serial-described": (
        f"{_SIMULATED} --config.methods=graph_cut,{','.join(_SERIAL_METHODS)} "
        "--config.graphs=inception_v3,resnet50,bert_base --config.devices=roofline:igpu,npu"
    ),
    "serial-host": (
        f"{_SIMULATED} --config.methods=graph_cut,{','.join(_SERIAL_METHODS)} "
        f"--config.graphs=inception_v3,resnet50 --config.devices={_TWO_CORES}"
    ),
}
_SIMULATE = "--config=simulate --task=compare"
_SYNTHETIC = [f"synthetic:family={f},ops=300" for f in ("layered", "series_parallel")]
_HEADROOM_GRAPHS = ",".join(["rnnlm", "nmt:layers=2", *_SYNTHETIC])
_PAPER = "hsdag:variant=paper"
_ABLATION = (
    f"{_SIMULATE} --config.graphs={','.join(_SYNTHETIC)} --config.seeds=5 --config.budget=8000 "
    f"--config.methods={_PAPER},{_PAPER},features=op_type+degrees+fractal+positional,"
    f"{_PAPER},features=op_type+degrees+fractal+output_shape,"
    f"{_PAPER},features=op_type+output_shape"
)
_UNTRAINED = "hsdag:variant=untrained"
_ROLES = "hierarchical:grouping=roles,num_groups=128"
_QUESTIONS = {
    "specifications": (
        (_UNTRAINED, "scheduler"),
        f"{_SIMULATE} --config.graphs={_HEADROOM_GRAPHS} --config.seeds=5 --config.budget=2000 "
        f"--config.methods={_UNTRAINED},{_UNTRAINED},specifications=False,"
        "scheduler,scheduler:specifications=False",
    ),
    "roles_planner": (
        ("hierarchical",),
        f"{_SIMULATE} --config.graphs=rnnlm,nmt:layers=2 --config.seeds=5 --config.budget=2000 "
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
# A part of it that needs no further packages or programs.
_QUICK_PLANNER = {
    "planner_quick": (
        f"{_REPRODUCED} --config.graphs=inception_v3:training=1 --config.seeds=5 "
        "--config.methods=human_expert,hierarchical,colocrl,placeto,hsdag "
        "--config.budget=320 --config.time_limit_s=5"
    )
}
# Not with eight GPUs: `cpsat` refuses, as its program would need too much memory.
_EXACT = {
    f"{name}-exact": f"{_PLANNER[name]} --config.methods=cpsat --config.seeds=1"
    for name in ("hierarchical", "hierarchical-4")
}
# The search on the same networks, limited by time alone.
_PLANNER_SEARCH = {
    f"{run}-search": (
        f"{command} --config.methods=human_expert,search --config.budget=1000000 --config.seeds=5"
    )
    for run, command in _PLANNER.items()
}
_MAX_LOAD_METHODS = {
    "layer_bert24_inference": ("ideals_dp", "cpsat"),
    "layer_gnmt_inference": ("ideals_dp", "cpsat"),
    "layer_resnet50_inference": ("ideals_dp",),
    "layer_resnet50_training": ("ideals_dp",),
    "operator_bert3_inference": ("ideals_dp", "cpsat"),
    "operator_bert3_training": ("ideals_dp",),
}
_SUBGRAPH_METHODS = {
    name: ("greedy", "cpsat")
    for name in ("layer_bert24_inference", "layer_gnmt_inference", "operator_bert3_inference")
}
_SIZES = {f"scale-{size}": f"experiments.benchmarks.scale {size}" for size in scale.SIZES}
_LARGE = {
    "large_methods": (
        f"{_SIMULATED} --config.graphs=nmt:layers=8,steps=60,synthetic:family=layered,ops=100000 "
        "--config.devices=roofline:cpu,gpu,gpu --config.methods=heft,hsdag,hierarchical,search "
        "--config.objective=makespan --config.budget=1000000 --config.time_limit_s=45 "
        "--config.seeds=1"
    )
}
_POLICY = "../../placement/methods/pretrained/policy.msgpack"  # relative to the folder of the runs
_PROPOSALS = {"proposals": "experiments.benchmarks.proposals"}
_UNSEEN = {"unseen": f"experiments.benchmarks.unseen {_POLICY}"}
TABLES = {
    "quickstart": Table(
        "README.md",
        {"quickstart": _QUICK},
        partial(readers.read_report_table, run="quickstart", columns=["status"]),
    ),
    "tutorial": Table(
        "docs/TUTORIAL.md",
        {"tutorial": f"{_QUICK} --config.graph=model.onnx"},
        partial(readers.read_report_table, run="tutorial", columns=["status"]),
    ),
    "concurrent_fidelity": Table(
        "docs/CONCURRENT.md", _FIDELITY, partial(readers.read_fidelity, runs=_FIDELITY)
    ),
    "verdicts": Table(
        "docs/CONCURRENT.md",
        _ADVICE,
        partial(
            readers.read_verdicts,
            runs={run: devices for run, (_, devices) in _ADVICE_CASES.items()},
            objectives=("serial", "makespan", "max_load"),
        ),
    ),
    "streams": Table(
        "docs/CONCURRENT.md",
        _STREAMS,
        partial(readers.read_gains, runs=_STREAMS, method="ideals_dp"),
    ),
    "concurrent_gains": Table(
        "docs/CONCURRENT.md", _GAINS, partial(readers.read_gains, runs=_GAINS, method="search")
    ),
    "solvers_max_load": Table(
        "docs/SOLVERS.md",
        _workload_commands("max_load", _MAX_LOAD_METHODS, "--config.time_limit_s=100"),
        partial(readers.read_workloads, kind="max_load", methods_by_file=_MAX_LOAD_METHODS),
        needed_path="workloads/throughput",
    ),
    "solvers_subgraph": Table(
        "docs/SOLVERS.md",
        _workload_commands("subgraph", _SUBGRAPH_METHODS, "--config.time_limit_s=280"),
        partial(readers.read_workloads, kind="subgraph", methods_by_file=_SUBGRAPH_METHODS),
        needed_path="workloads/latency",
    ),
    "solvers_serial": Table(
        "docs/SOLVERS.md",
        _SERIAL,
        partial(readers.read_gaps, runs=_SERIAL, exact="graph_cut", methods=_SERIAL_METHODS),
    ),
    **{
        name: Table(page, {}, partial(_read_audit, name=name))
        for name, page in (
            ("methods", "README.md"),
            *((f"audit{name}", "docs/REPRODUCTION.md") for name in _AUDIT_TABLES),
        )
    },
    "ablation": Table(
        "docs/REPRODUCTION.md",
        {"ablation": _ABLATION},
        partial(readers.read_scores, run="ablation", baselines=[_PAPER]),
    ),
    "hierarchical": Table(
        "docs/REPRODUCTION.md",
        _PLANNER | _EXACT,
        partial(readers.read_merged_comparison, runs=[*_PLANNER, *_EXACT]),
    ),
    "planner_quick": Table(
        "docs/REPRODUCTION.md",
        _QUICK_PLANNER,
        partial(readers.read_merged_comparison, runs=[*_QUICK_PLANNER], dropped=["reduction"]),
    ),
    **{
        f"published_{name}": Table(
            "docs/REPRODUCTION.md",
            _PLANNER,
            partial(readers.read_published, runs=_PLANNER, table=table),
        )
        for name, table in (
            ("planner", "hierarchical_planner"),
            ("random_groups", "hierarchical_random_groups"),
        )
    },
    "planner_search": Table(
        "docs/REPRODUCTION.md",
        _PLANNER_SEARCH,
        partial(readers.read_merged_comparison, runs=_PLANNER_SEARCH, dropped=["reduction"]),
    ),
    "conclusions": Table(
        "docs/REPRODUCTION.md", _PLANNER, partial(conclusions.read, runs=tuple(_PLANNER))
    ),
    "hsdag": Table(
        "docs/REPRODUCTION.md",
        {"hsdag": "--config=reproduce_hsdag --task=compare"},
        partial(
            readers.read_report_table,
            run="hsdag",
            columns=["reduction"],
            dropped=["bound", "gap of the best"],
        ),
    ),
    **{
        name: Table(
            "docs/QUESTIONS.md",
            {name: command},
            partial(readers.read_scores, run=name, baselines=baselines),
        )
        for name, (baselines, command) in _QUESTIONS.items()
    },
    "roles_search": Table(
        "docs/QUESTIONS.md",
        {"roles_search": "experiments.reproduction.questions roles"},
        readers.read_roles,
    ),
    "objectives": Table(
        "docs/QUESTIONS.md",
        {"objectives": "experiments.reproduction.questions objectives"},
        readers.read_objectives,
    ),
    "scale": Table("docs/SCALE.md", _SIZES, partial(readers.read_phases, runs=_SIZES)),
    "scale_methods": Table(
        "docs/SCALE.md",
        _LARGE,
        partial(readers.read_merged_comparison, runs=_LARGE, dropped=["reduction"]),
    ),
    "precisions": Table(
        "docs/DEVICES.md",
        _PRECISIONS,
        partial(readers.read_precisions, runs=_PRECISIONS, method="graph_cut"),
    ),
    "servers": Table(
        "docs/DEVICES.md", {"servers": "experiments.benchmarks.servers"}, readers.read_servers
    ),
    "memory": Table(
        "docs/MEMORY.md", {"memory": "experiments.benchmarks.memory"}, readers.read_memory
    ),
    "learned_groups": Table(
        "docs/SEARCH.md", _PROPOSALS, partial(readers.read_proposals, table=0, header=HEADER)
    ),
    "learned_moves": Table(
        "docs/SEARCH.md", _PROPOSALS, partial(readers.read_proposals, table=1, header=MOVES_HEADER)
    ),
    "unseen_devices": Table("docs/PRETRAINING.md", _UNSEEN, readers.read_unseen_by_devices),
    "unseen_families": Table("docs/PRETRAINING.md", _UNSEEN, readers.read_unseen_by_family),
}

# Lists of sentences: the page, and the function that makes them from the folder of all runs.
SENTENCES: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "quickstart": ("README.md", partial(readers.read_verdict, run="quickstart")),
    "tutorial": ("docs/TUTORIAL.md", partial(readers.read_verdict, run="tutorial")),
    "concurrent_fidelity": (
        "docs/CONCURRENT.md",
        partial(readers.describe_fidelity, runs=_FIDELITY),
    ),
    "concurrent_gains": (
        "docs/CONCURRENT.md",
        partial(readers.describe_gains, runs=_GAINS, method="search"),
    ),
    "streams": (
        "docs/CONCURRENT.md",
        partial(readers.describe_gains, runs=_STREAMS, method="ideals_dp"),
    ),
    "precisions": (
        "docs/DEVICES.md",
        partial(readers.describe_precisions, runs=_PRECISIONS, method="graph_cut"),
    ),
    "conclusions": (
        "docs/REPRODUCTION.md",
        partial(conclusions.describe, runs=tuple(_PLANNER)),
    ),
    "methods": (
        "README.md",
        lambda _: [
            audit.describe_coverage(audit.read_stored()),
            *audit.describe_excess(audit.read_stored()),
        ],
    ),
    "audit": ("docs/REPRODUCTION.md", lambda _: audit.make_sentences(audit.read_stored())),
    "audit_parts": (
        "docs/REPRODUCTION.md",
        lambda _: audit.make_parts_sentences(audit.read_stored()),
    ),
    "audit_newest": (
        "docs/REPRODUCTION.md",
        lambda _: audit.make_newest_sentences(audit.read_stored()),
    ),
    "audit_sharded": (
        "docs/REPRODUCTION.md",
        lambda _: audit.make_sharded_sentences(audit.read_stored()),
    ),
}
