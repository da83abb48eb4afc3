"""ColocRL (Mirhoseini et al. 2017) with the sizes and the update of its authors.

    python -m experiments.main --config=configs/colocrl.py --workdir=runs/colocrl

`--config.method=colocrl:variant=tuned` is our change of the method: a smaller LSTM, trained by PPO.
The docstrings of `placement.policies.colocrl` and `seq2seq` list the departures of both.
"""

from ml_collections import ConfigDict

from configs import common


def get_config() -> ConfigDict:
    """RNNLM on a described CPU and two described GPUs; nothing is measured.

    35 updates of 16 placements took a minute on two busy cores: 2.46 ms, against 2.89 ms on one
    GPU. With the network's usual 35 steps there are five.
    """
    config = common.base()
    config.graph = "rnnlm:steps=4"
    config.devices = "roofline:cpu,gpu,gpu"
    config.objective = "makespan"
    config.method = "colocrl"
    config.starts = "single"  # the result is then the method's own
    config.budget = 2_000
    return config
