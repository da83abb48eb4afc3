"""ColocRL (Mirhoseini et al. 2017) with the sizes and the update of its authors.

    python -m experiments.main --config=configs/colocrl.py --workdir=runs/colocrl

`--config.method=colocrl:variant=tuned` is our change of the method: a smaller LSTM, trained by PPO.
The docstrings of `placement.policies.colocrl` and `seq2seq` list the departures of both.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """RNNLM on a described CPU and two described GPUs; nothing is measured."""
    config = common.base()
    config.graph = "rnnlm:steps=4"
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.method = "colocrl"
    config.budget = 2_000
    return config
