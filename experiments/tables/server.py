"""A fit of the server of Mirhoseini et al. (2018) to the single devices of their table 1.

    python -m experiments.tables.server

For the CPU and a GPU it fits two numbers each: the fraction of the peak that operations reach, and
the launch time of an operation. The launch time also stands for the further operations that
TensorFlow launches. The fit minimises squared logarithms of the ratios to the columns with all
operations on the CPU and all on one GPU.

Sizes that the papers omit, or that are impossible, are chosen so that these columns come out:

- Inception-V3 has a batch of 1. The paper of 2017 says 32, but a step would then take 1.1 TFLOP,
  and no GPU of the time does that in 0.15 s. Its 4.60 s of 2017 are 31 times as long.
- ResNet-152 has a batch of 14.
- NMT has a batch of 40, 40 words per side and a vocabulary of 56,000. It then takes the published
  time on the CPU and does not fit into a GPU, where the gradients of the last layer's weights alone
  take five sixths of the memory. RNNLM is as published: a batch of 64 and 2048 hidden units; 35
  steps and 10,000 words are from Zaremba et al. (2014).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import optimize

from placement.costs import roofline
from placement.graphs import training
from placement.pipeline import loading
from placement.types import OpGraph

NMT = "steps=40,batch=40,vocabulary=56000"
# Mirhoseini et al. 2018, table 1, in seconds. It has no time of ResNet on the CPU, and NMT does not
# fit into one GPU.
PUBLISHED_S = {
    "server_cpu": {
        "inception_v3": 0.61,
        "rnnlm": 6.89,
        f"nmt:layers=2,{NMT}": 6.46,
        f"nmt:layers=4,{NMT}": 10.68,
        f"nmt:layers=8,{NMT}": 11.52,
    },
    "server_gpu": {"inception_v3": 0.15, "resnet:depth=152,batch=14": 1.18, "rnnlm": 1.57},
}
PEAK_FLOP_PER_S = {"server_cpu": 1324.8e9, "server_gpu": 4370e9}


class Fit(NamedTuple):
    """The fitted numbers of a device, and the times that follow from them."""

    fraction: float  # of the peak
    launch_s: float
    fitted_s: Mapping[str, float]  # by network


def fit(kind: str, graphs: Mapping[str, OpGraph]) -> Fit:
    """Fits a device's two numbers to its published times.

    Args:
      kind: a key of `PUBLISHED_S`.
      graphs: training steps by network; at least those with a published time.
    """
    published_s, spec = PUBLISHED_S[kind], roofline.SPECS[kind]

    def predict_s(logarithms: np.ndarray) -> dict[str, float]:
        fraction, launch_s = np.exp(logarithms)
        rates = dict.fromkeys(spec.flop_per_s, fraction * PEAK_FLOP_PER_S[kind])
        fitted = spec._replace(flop_per_s=rates, launch_s=launch_s)
        return {n: float(roofline.compute_s(graphs[n], [fitted]).sum()) for n in published_s}

    def residuals(logarithms: np.ndarray) -> list[float]:
        return [math.log(s / published_s[name]) for name, s in predict_s(logarithms).items()]

    logarithms = optimize.least_squares(residuals, np.log([0.2, 1e-4])).x
    fraction, launch_s = np.exp(logarithms).tolist()
    return Fit(fraction, launch_s, predict_s(logarithms))


def build_training_graphs() -> dict[str, OpGraph]:
    """Returns the training steps with published times, with Adam, by network."""
    names = dict.fromkeys(name for published in PUBLISHED_S.values() for name in published)
    return {
        name: training.make_training_graph(loading.extract_zoo_graph(name, constants=True)).graph
        for name in names
    }


def main() -> None:
    """Prints the fitted numbers and the remaining errors."""
    graphs = build_training_graphs()
    for kind, published in PUBLISHED_S.items():
        result = fit(kind, graphs)
        launch_us = 1e6 * result.launch_s
        print(f"{kind}: {result.fraction:.3f} of the peak, {launch_us:.0f} us to launch")
        for name, seconds in result.fitted_s.items():
            error = seconds / published[name] - 1
            print(f"  {name:46} {published[name]:6.2f} s, fitted {seconds:6.2f} s, {error:+.0%}")


if __name__ == "__main__":
    main()
