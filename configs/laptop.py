"""Methods on the three devices of a described laptop, in simulation.

    python -m experiments.main --config=configs/laptop.py --task=compare --workdir=runs/laptop

`hsdag` learns here by policy gradients; `hsdag:learning_rate=0` is the same without learning.
docs/DEVICES.md compares the predictions for the laptop with published latencies. On a chain, such
as `--config.graph=resnet50`, no placement is faster than the best single device.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """A network of two parallel branches; every search starts at the single devices."""
    config = common.base()
    config.graph = "two_stream:size=128"
    config.devices = "roofline:laptop_155h_cpu,laptop_155h_igpu,laptop_155h_npu"
    config.objective = "makespan"
    config.methods = "heft,hsdag,hsdag:learning_rate=0,hierarchical:variant=tuned,epochs=1,search"
    config.evaluate = "simulate"
    config.starts = "single"  # what a method finds is then its own
    config.budget = 4_000
    return config
