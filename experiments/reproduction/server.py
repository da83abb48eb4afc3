"""Fits the server of Mirhoseini et al. (2018) to what their table 1 says of single devices.

    python -m experiments.reproduction.server

Four numbers: of the CPU and of a GPU the fraction of the peak that operations reach, and what one
takes beside (TensorFlow launches more operations than a network has here). They are fitted to the
columns of all on the CPU and all on one GPU alone, in least squares of logarithms.

Sizes that the papers do not say, or that cannot be, are chosen so that these columns come out:

- Inception-V3 has a batch of 1. The one published (2017) is 32, of which a step has 1.1 TFLOP: in
  0.15 s no GPU of the time does that. Its 4.60 s of 2017 are 31 times as long.
- ResNet-152 has a batch of 14.
- NMT has a batch of 40, 40 words a side and a vocabulary of 56,000, so that it takes what it took
  on the CPU, and does not fit into a GPU, of which all gradients of the last layer's weights have
  five sixths. RNNLM is as published: a batch of 64, 2048 hidden units; 35 steps and 10,000 words
  are those of Zaremba et al. (2014).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import optimize

from placement.costs import roofline
from placement.costs.roofline import DeviceSpec
from placement.graphs import training
from placement.pipeline import loading
from placement.types import OpGraph

NMT = "steps=40,batch=40,vocabulary=56000"
# Mirhoseini et al. 2018, table 1, in seconds. ResNet has no number on the CPU, and NMT does not fit
# into one GPU.
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
    """What a device reaches, and how far that is from what was published."""

    fraction: float  # of the peak
    launch_s: float
    fitted_s: Mapping[str, float]  # by network


def fit(kind: str, graphs: Mapping[str, OpGraph]) -> Fit:
    """Fits a device's two numbers to its published run times.

    Args:
      kind: a key of `PUBLISHED_S`.
      graphs: steps of training, by network; at least those with a published time.
    """
    published = PUBLISHED_S[kind]

    def of(logarithms: np.ndarray) -> dict[str, float]:
        fraction, launch_s = np.exp(logarithms)
        spec = _with(kind, fraction, launch_s)
        return {name: float(roofline.compute_s(graphs[name], [spec]).sum()) for name in published}

    def residuals(logarithms: np.ndarray) -> list[float]:
        return [math.log(s / published[name]) for name, s in of(logarithms).items()]

    found = optimize.least_squares(residuals, np.log([0.2, 1e-4])).x
    fraction, launch_s = np.exp(found).tolist()
    return Fit(fraction, launch_s, of(found))


def _with(kind: str, fraction: float, launch_s: float) -> DeviceSpec:
    spec = roofline.SPECS[kind]
    rates = dict.fromkeys(spec.flop_per_s, fraction * PEAK_FLOP_PER_S[kind])
    return spec._replace(flop_per_s=rates, launch_s=launch_s)


def steps() -> dict[str, OpGraph]:
    """The steps of training that were published, with Adam."""
    names = dict.fromkeys(name for published in PUBLISHED_S.values() for name in published)
    return {
        name: training.training(loading.without_weights(name, constants=True).graph).graph
        for name in names
    }


def main() -> None:
    """Prints the fit and what it leaves over."""
    graphs = steps()
    for kind, published in PUBLISHED_S.items():
        found = fit(kind, graphs)
        print(f"{kind}: {found.fraction:.3f} of the peak, {1e6 * found.launch_s:.0f} us to launch")
        for name, seconds in found.fitted_s.items():
            over = seconds / published[name] - 1
            print(f"  {name:46} {published[name]:6.2f} s, fitted {seconds:6.2f} s, {over:+.0%}")


if __name__ == "__main__":
    main()
