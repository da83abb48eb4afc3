"""Everything that `place` does, on ResNet-50 with a small budget: seconds on a CPU.

python -m experiments.main --config=configs/smoke.py --workdir=runs/smoke
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """A small budget and short measurements: the table's intervals are wide."""
    config = common.base()
    config.graph = "resnet50"
    config.backend, config.objective = "hetero", "serial"
    config.method, config.methods = "hsdag", "all"
    config.budget = 2_000
    config.measure_s = 1.0
    config.search_anyway = True  # to run every step, whatever the possible gain
    return config
