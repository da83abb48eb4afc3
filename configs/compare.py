"""Every method on one graph, in one table.

python -m experiments.main --config=configs/compare.py --workdir=runs/compare --task=compare
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """All methods with the same budget; the Hierarchical Planner also without initial slices."""
    config = common.base()
    config.methods = "all,hierarchical:slices=0"
    return config
