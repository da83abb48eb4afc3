"""The Hierarchical Planner (Mirhoseini et al. 2018) with the constants of its released code.

    python -m experiments.main --config=configs/hierarchical.py --workdir=runs/hierarchical

The ablation is `--config.method=hierarchical:grouping=random`. `hierarchical:variant=tuned` is our
change of the method: smaller, with groups that start as slices. The docstrings of
`placement.policies.hierarchical` and `seq2seq` list the departures of both.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """RNNLM on a described CPU and two described GPUs; nothing is measured.

    An update learns from one placement. 116 of them took a minute on two busy cores: the first
    five lower the latency from 50 to 2.89 ms, one GPU alone, and no later one is better.
    """
    config = common.base()
    config.graph = "rnnlm:steps=4"
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.method = "hierarchical"
    config.starts = "single"  # the result is then the method's own
    config.budget = 2_000
    return config
