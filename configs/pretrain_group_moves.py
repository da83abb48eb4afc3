"""Pretraining of group moves on some families of networks, to place networks of other families.

    python -m experiments.main --task=pretrain --config=pretrain_group_moves \
        --workdir=runs/pretrained

The installed result is the policy that `group_moves` starts from; another one replaces it with
`--config.init_from=runs/pretrained/policy.msgpack`.
"""

from ml_collections import ConfigDict

from configs import pretrain


def get_config() -> ConfigDict:
    """The families, devices and objective are those of `configs/pretrain.py`."""
    config = pretrain.get_config()
    config.method = "group_moves:variant=untrained,uniform=0,learning_rate=0.001"
    config.constants = True
    config.budget = 2_457_600  # 48 batches: 400 steps on each of four graphs
    config.time_limit_s = 7_200.0
    return config
