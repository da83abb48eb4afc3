"""Places Inception-V3 on the devices found, which then work at the same time, and measures it.

    python -m experiments.main --config=configs/quickstart.py --workdir=runs/quickstart

About a minute on two CPU cores.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """A search of large neighbourhoods in the simulator; what it finds measured on the devices."""
    config = common.base().unlock()
    config.backend = "concurrent"
    config.objective = "makespan"
    config.method = "lns"
    return config.lock()
