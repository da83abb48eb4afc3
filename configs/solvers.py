"""Every classical and exact solver of an objective on one graph, with bounds.

    python -m experiments.main --config=configs/solvers.py --task=solve --workdir=runs/solvers \
        --config.objective=makespan

Solvers that do not finish by themselves stop after a minute each.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """Inception-V3 on described devices; solvers need no real device."""
    config = common.base()
    config.backend, config.objective, config.methods = "hetero", "serial", "all"
    config.budget = 32_000
    config.devices = "roofline:cpu,gpu"
    config.evaluate = "simulate"
    return config
