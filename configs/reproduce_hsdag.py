"""The main table of HSDAG (Duan et al. 2024).

    python -m experiments.main --config=configs/reproduce_hsdag.py --task=compare \
        --workdir=runs/reproduce_hsdag

On a machine with a GPU set `--config.devices=CPU,GPU`; `host:f32,f32` stands for two cores of the
CPU. docs/HSDAG.md has times and results.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """The paper's three networks; searches run in the simulator, and their results are measured.

    The devices run at the same time. One after another, two equal cores have nothing to gain.
    """
    config = common.base()
    config.graphs = "inception_v3,resnet50,bert_base"
    config.devices = "host:f32,f32"
    config.objective, config.backend = "makespan", "concurrent"
    config.methods = "hetero,placeto:variant=tuned,colocrl:variant=tuned,hsdag"
    config.starts = "single"  # the papers compare with heuristics
    config.seeds = 5
    config.budget = 8_000
    config.time_limit_s = 20.0
    return config
