"""Placeto (Addanki et al. 2019), trained on one graph.

    python -m experiments.main --config=configs/placeto.py --workdir=runs/placeto

An episode has one step per operation; every step is evaluated and counts.
`--config.method=placeto:variant=tuned` is our change of the method: one step per group of
operations, and four episodes per update. The docstring of `placement.policies.placeto` lists the
departures of both.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """RNNLM on a described CPU and two described GPUs; nothing is measured.

    381 episodes took 46 s on two busy cores: 2.79 ms, against 2.89 ms on one GPU.
    """
    config = common.base()
    config.graph = "rnnlm:steps=4"
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.method = "placeto"
    config.starts = "single"  # the result is then the method's own
    config.budget = 32_000
    return config
