"""Tables 1 and 2 of the Hierarchical Planner (Mirhoseini et al. 2018) on a described server.

    python -m experiments.main --config=configs/reproduce_hierarchical.py --task=compare \
        --workdir=runs/reproduce_hierarchical

This command makes the rows with two GPUs. For four GPUs set another run directory, and add:

    --config.devices=roofline:server_cpu,server_gpu,server_gpu,server_gpu,server_gpu
    --config.graphs=nmt:layers=4,steps=40,batch=40,vocabulary=56000,training=1

For eight GPUs write server_gpu eight times, and layers=8. For an exact solver and its bound add:

    --config.methods=cpsat --config.seeds=1

Scotch and pymetis are optional: without them the methods `scotch` and `min_cut` are left out.

docs/REPRODUCTION.md has times and results.
"""

from ml_collections import ConfigDict

from configs import common

_NMT = "nmt:layers=2,steps=40,batch=40,vocabulary=56000"


def get_config() -> ConfigDict:
    """Training steps on two GPUs of 2018, simulated by `makespan` with memory over time."""
    config = common.base()
    graphs = ("inception_v3", "resnet:depth=152,batch=14", "rnnlm", _NMT)
    config.graphs = ",".join(f"{g}{',' if ':' in g else ':'}training=1" for g in graphs)
    config.devices = "roofline:server_cpu,server_gpu,server_gpu"
    config.objective = "makespan"
    config.methods = (
        "human_expert,scotch,min_cut,hierarchical:variant=tuned,"
        "hierarchical:variant=tuned,grouping=random,colocrl:variant=tuned,placeto:variant=tuned,search"
    )
    config.starts = "single"  # the papers compare with heuristics
    config.seeds = 10
    config.budget = 1_000
    config.time_limit_s = 20.0
    return config
