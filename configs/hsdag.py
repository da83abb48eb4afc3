"""HSDAG (Duan et al. 2024) as its authors describe it, on any graph.

    python -m experiments.main --config=configs/hsdag.py --workdir=runs/hsdag \
        --config.graph=resnet50 --config.evaluate=simulate+verify

`--config.method=hsdag:variant=released` reproduces the authors' released code, faults included, and
`hsdag:variant=released,faults=0` corrects these; `hsdag` alone is this project's default.
`hsdag:variant=paper,features=op_type+degrees` and the like are the ablations. With
`--config.evaluate=measure` every placement is run on the devices: some seconds a placement, so
lower the budget.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """The paper's 25 episodes of 20 steps are a budget of 500 a rollout; here 8 rollouts a step."""
    config = common.base()
    config.method = "hsdag:variant=paper"
    config.budget = 4_000
    return config
