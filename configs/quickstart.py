"""Places Inception-V3 on the available devices, which work at the same time, and measures it.

    python -m experiments.main --config=configs/quickstart.py --workdir=runs/quickstart

About a minute on two CPU cores.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """A search of some seconds in the simulator; its best placements are then measured."""
    config = common.base()
    # Shows the search even on a machine with only a CPU. There, for many networks no placement is
    # faster than the CPU with all its threads, and --task=place would stop before searching.
    config.search_anyway = True
    return config
