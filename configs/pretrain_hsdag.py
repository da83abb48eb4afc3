"""HSDAG learns on some families of networks, and carries over to others.

    python -m experiments.main --task=pretrain --config=pretrain_hsdag --workdir=runs/pretrain_hsdag

What it makes is what `hsdag` begins with; another policy takes its place with
`--config.init_from=runs/pretrain_hsdag/policy.msgpack`.
"""

from ml_collections import ConfigDict

from configs import pretrain


def get_config() -> ConfigDict:
    """Families, devices and objective are those of the scheduler's."""
    config = pretrain.get_config().unlock()
    config.method = "hsdag:variant=untrained,uniform=0,learning_rate=0.001"
    config.constants = True
    config.budget = 2_457_600  # 48 batches: 400 steps on each of four graphs
    config.time_limit_s = 7_200.0
    return config.lock()
