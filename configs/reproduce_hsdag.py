"""The main table of HSDAG (Duan et al. 2024).

    python -m experiments.main --config=configs/reproduce_hsdag.py --task=compare \
        --workdir=runs/reproduce_hsdag

The devices are two cores of the CPU, which work at the same time: under HETERO, as in the paper, no
placement on equal devices gains. On a machine with a GPU give `--config.devices=CPU,GPU`, and for
the paper's setting `--config.backend=hetero --config.objective=serial` too. docs/REPRODUCTION.md
has times and results.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """The paper's three networks; searches run in the simulator, and their results are measured."""
    config = common.base()
    config.graphs = "inception_v3,resnet50,bert_base"
    config.devices = "host:f32,f32"
    config.backend = "concurrent"
    config.objective = "makespan"
    config.methods = "hetero,placeto,colocrl,hsdag:variant=paper,hsdag"
    config.seeds = 5
    config.budget = 2_000
    config.time_limit_s = 20.0
    return config
