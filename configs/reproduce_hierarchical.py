"""Tables 1 and 2 of the Hierarchical Planner (Mirhoseini et al. 2018) on described devices.

    python -m experiments.main --config=configs/reproduce_hierarchical.py --task=compare \
        --workdir=runs/reproduce_hierarchical

The rows with two GPUs. For those with four and eight, in work directories of their own:

    --config.devices=roofline:cpu,gpu,gpu,gpu,gpu --config.graphs=nmt:layers=4
    --config.devices=roofline:cpu,gpu,gpu,gpu,gpu,gpu,gpu,gpu,gpu --config.graphs=nmt:layers=8

docs/REPRODUCTION.md has times and results.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """Inference, simulated by `makespan`; the paper measures training steps on real GPUs."""
    config = common.base()
    config.graphs = "inception_v3,resnet50,rnnlm,nmt:layers=2"
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.methods = (
        "human_expert,scotch,min_cut,"
        "hierarchical,hierarchical:slices=0,hierarchical:grouping=random"
    )
    config.seeds = 5
    config.budget = 8_000
    config.time_limit_s = 30.0
    return config
