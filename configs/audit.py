"""Every method at equal evaluations and at equal wall time, with the statistics of few runs.

    python -m experiments.main --config=configs/audit.py --task=compare --workdir=runs/audit

That is at equal evaluations, with two accelerators of one kind. At equal wall time, and with
accelerators of two kinds, in work directories of their own:

    --config.budget=1000000000 --config.time_limit_s=30
    --config.devices=roofline:cpu,igpu,npu

The first and the third take a day and a half on two cores, the second nine hours, by an estimate:
docs/EXPERIMENTS.md, which also says how to read the result. `graph_cut` is for `serial` alone, and
so is not in the list.
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
# The paper's ablation: blocks of features left out in turn; the others stay.
_ABLATION = (
    f"{_PAPER},features=op_type+degrees+fractal+positional",  # output shapes
    f"{_PAPER},features=op_type+degrees+fractal+output_shape",  # the position, its node ID
    f"{_PAPER},features=op_type+output_shape",  # all that tells the structure
)
_CLASSICAL = ("heft", "peft", "m_etf", "lns", "cpsat", "human_expert", "metis", "scotch")
_GRAPHS = (
    *("inception_v3", "resnet50", "bert_base", "rnnlm", "nmt:layers=2"),
    *(f"synthetic:family={family},ops=300" for family in ("layered", "series_parallel")),
)


def get_config() -> ConfigDict:
    """Graphs with room below the best single device and graphs without, ten seeds, `makespan`."""
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
