"""Every method at equal evaluations or at equal wall time, with statistics over few runs.

    python -m experiments.main --config=configs/audit.py --task=compare --workdir=runs/audit

This command compares at equal evaluations, with two accelerators of one kind. These flags compare
at equal wall time, and with accelerators of two kinds (give each a work directory of its own):

    --config.budget=1000000000 --config.time_limit_s=30
    --config.devices=roofline:cpu,igpu,npu

The first and the third take about a day and a half on two cores, the second about nine hours.
docs/EXPERIMENTS.md explains the result. `graph_cut` only solves `serial` and so is not in the list.
"""

from ml_collections import ConfigDict

from configs import common

_PAPER = "hsdag:variant=paper"
_LEARNED = (
    "hsdag:variant=released",
    "hsdag:variant=released,faults=0",
    _PAPER,
    "hsdag",
    "hsdag:variant=untrained",
    "hierarchical",
    "hierarchical:slices=0",
    "colocrl",
    "placeto",
    "scheduler",
    "zero_shot",
    "search",
)
# The ablation of the paper: each variant lacks one block of features.
_ABLATION = (
    f"{_PAPER},features=op_type+degrees+fractal+positional",  # without output shapes
    f"{_PAPER},features=op_type+degrees+fractal+output_shape",  # without the position
    f"{_PAPER},features=op_type+output_shape",  # without the structure
)
_CLASSICAL = ("heft", "peft", "m_etf", "lns", "cpsat", "human_expert", "metis", "scotch")
_GRAPHS = (
    *("inception_v3", "resnet50", "bert_base", "rnnlm", "nmt:layers=2"),
    *(f"synthetic:family={family},ops=300" for family in ("layered", "series_parallel")),
)


def get_config() -> ConfigDict:
    """Graphs with and without a possible gain over the best single device; ten seeds."""
    config = common.base()
    config.graphs = ",".join(_GRAPHS)
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.methods = ",".join((*_LEARNED, *_ABLATION, *_CLASSICAL))
    config.evaluate = "simulate"
    config.seeds = 10
    config.budget = 32_000
    config.time_limit_s = 600.0
    return config
