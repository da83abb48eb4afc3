"""Pretraining of a policy on some families of networks, to place networks of other families.

    python -m experiments.main --task=pretrain --config=pretrain --workdir=runs/pretrain

Then place networks and families that it was not trained on:

    python -m experiments.main --task=compare --config=pretrain --workdir=runs/unseen \\
        --config.devices=roofline:cpu,gpu,gpu --config.graphs=inception_v3,rnnlm \\
        --config.methods=heft,lns,zero_shot --config.init_from=runs/pretrain/policy.msgpack
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """The held-out families are inception_v3, rnnlm, two_stream, fork_join and chain."""
    config = common.base()
    config.evaluate = "simulate"
    config.objective = "makespan"
    config.method = "scheduler:learning_rate=0.01,learning_rate_decay=0.98"
    config.devices = "roofline:cpu,gpu,gpu;roofline:cpu,igpu,npu"
    config.constants = False  # as for the installed policy
    config.families = "layered,series_parallel,resnet,bert,nmt"
    config.members = 12
    config.budget = 576_000  # 6,000 updates
    config.time_limit_s = 1_800.0
    return config
