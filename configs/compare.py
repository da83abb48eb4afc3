"""The comparison of `placement compare`: some methods on one graph, in one table.

python -m experiments.main --config=configs/compare.py --workdir=runs/compare --task=compare
"""

from ml_collections import ConfigDict

from configs import common
from placement.pipeline.settings import COMPARED_METHODS, QUICKSTART


def get_config() -> ConfigDict:
    """The defaults of the installed command; `--config.methods=all` compares every method."""
    config = common.base()
    config.update(QUICKSTART)
    config.methods = COMPARED_METHODS
    return config
