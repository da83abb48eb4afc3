"""HSDAG (Duan et al. 2024) as its authors describe it, on any graph.

    python -m experiments.main --config=configs/hsdag.py --workdir=runs/hsdag \
        --config.graph=resnet50 --config.evaluate=simulate+verify

`--config.method=hsdag:variant=released` reproduces the authors' released code with its bugs, and
`hsdag:variant=released,faults=0` without them; `hsdag` alone is this project's default. The
ablations are `hsdag:variant=paper,features=op_type+degrees` and similar. With
`--config.evaluate=measure` every placement runs on the devices, which takes some seconds each; then
set a lower budget.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """The paper's 25 episodes of 20 steps are 500 evaluations; a step here has 8 rollouts."""
    config = common.base()
    config.backend, config.objective = "hetero", "serial"
    config.method = "hsdag:variant=paper"
    config.budget = 4_000
    return config
