"""Comparisons of methods in simulation, with statistics over ten seeds.

    python -m experiments.main --config=configs/simulate.py --task=compare --workdir=runs/simulate

By default every method on seven graphs at equal evaluations, which takes a day and a half on two
cores. `experiments.tables.audit` compares the methods on problems that no policy was trained on.
docs/EXPERIMENTS.md explains the result. `graph_cut` only solves `serial` and so is not in the list.
"""

from ml_collections import ConfigDict

from configs import common

_LEARNED = (
    "hsdag",
    "hsdag:variant=released",
    "hsdag:variant=released,faults=0",
    *(f"{m}{v}" for m in ("hierarchical", "colocrl", "placeto") for v in ("", ":variant=tuned")),
    "scheduler",
    "zero_shot",
    "search",
)
# The ablation of the paper: each variant lacks one block of features.
_ABLATION = (
    "hsdag:features=op_type+degrees+fractal+positional",  # without output shapes
    "hsdag:features=op_type+degrees+fractal+output_shape",  # without the position
    "hsdag:features=op_type+output_shape",  # without the structure
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
