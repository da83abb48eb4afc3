"""Placeto (Addanki et al. 2019), trained on one graph.

    python -m experiments.main --config=configs/placeto.py --workdir=runs/placeto

Every step of an episode, one an operation, is evaluated and counts. `--config.method=placeto` alone
is this project's default: a step for each of some groups, four episodes an update.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """RNNLM on a CPU and two GPUs, all described: nothing is measured."""
    config = common.base()
    config.graph = "rnnlm"
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.method = "placeto:variant=paper"
    config.budget = 32_000
    return config
