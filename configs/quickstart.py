"""Places Inception-V3 on the devices found, which then work at the same time, and measures it.

    python -m experiments.main --config=configs/quickstart.py --workdir=runs/quickstart

About a minute on two CPU cores.
"""

from ml_collections import ConfigDict

from configs import common
from placement.pipeline.settings import QUICKSTART


def get_config() -> ConfigDict:
    """A search in the simulator, of some seconds; what it finds measured on the devices."""
    config = common.base().unlock()
    config.update(QUICKSTART)
    # To demonstrate the search: on one CPU no placement of many networks is faster than the CPU
    # with all its threads, and --task=place would stop before searching.
    config.search_anyway = True
    return config.lock()
