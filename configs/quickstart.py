"""Places Inception-V3 on the devices found, and measures the result.

    python -m experiments.main --config=configs/quickstart.py --workdir=runs/quickstart

Under three minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """HSDAG in the simulator, the best few placements verified on the devices."""
    return common.base()
