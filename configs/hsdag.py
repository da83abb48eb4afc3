"""HSDAG (Duan et al. 2024) on a described CPU and two described GPUs; docs/HSDAG.md explains it.

    python -m experiments.main --config=configs/hsdag.py --workdir=runs/hsdag

`--config.method=hsdag:variant=released` is the authors' program with its faults, and
`hsdag:variant=released,faults=0` without them; `hsdag:features=op_type+degrees` is an ablation.
With `--config.evaluate=measure --config.devices=host` it learns from measured latencies, of eight
placements in each update; then set a lower budget, such as 200.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """25 updates as in the paper, each of 8 episodes of 20 steps.

    Half a minute on two cores: 2.64 ms, against 2.89 ms on one GPU.
    """
    config = common.base()
    config.graph = "rnnlm:steps=4"
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.method = "hsdag"
    config.starts = "single"  # the result is then the method's own
    config.budget = 4_000
    return config
