"""Random members of families of networks, to train policies that generalise to unseen graphs.

A member is a text that `config.graph` takes. `placement.zoo.build` builds it, or
`placement.zoo.synthetic.build` if it begins with 'synthetic:'. A training set is a list of texts.

Sizes are log-uniform, so that small and large members are equally frequent:

    family         counts                             sizes
    bert           layers 1-24                        heads 1-12, length 16-512,
                                                      vocabulary 1000-30000
    inception_v3   early 1-4, middle 1-8, late 1-4    size 75-299, width 25-100
    nmt            layers 1-8, steps from 2           hidden 64-512, vocabulary 1000-8000
    resnet         depth 18, 34, 50, 101 or 152       size 64-256, width 25-100
    rnnlm          layers 1-8, steps from 2           hidden 64-1024, vocabulary 1000-8000
    two_stream     depth 18, 34, 50 or 101            size 64-256, width 25-100
    chain, fork_join, layered, series_parallel:
                   ops 50-3000                        width 2-32 where there is one

A head is 64 wide, and hidden sizes are multiples of 64. Batches are 1-16, those of recurrent
networks 1-64. Every member has 50 to 3000 operations, constants included, which bounds the steps. A
network has at most 120 million weights, which bounds BERT's layers, and is built in about a second.
"""

import numpy as np

from placement import arguments

_MAX_STEP_OPS = 2900  # operations in all steps; at most 88 more belong to no step
_MAX_BERT_LAYERS = 24
_BERT_BASE = 12 * 12**2  # layers times heads squared; the number of weights is proportional to it

_NAMES = ("bert", "inception_v3", "nmt", "resnet", "rnnlm", "two_stream")
_SYNTHETIC_NAMES = ("chain", "fork_join", "layered", "series_parallel")


def names() -> tuple[str, ...]:
    """Returns the families that `draw` takes."""
    return _NAMES + _SYNTHETIC_NAMES


def draw(name: str, seed: int) -> str:
    """Draws a member of a family; equal seeds give equal texts.

    Raises:
      UserError: no family has that name.
    """
    arguments.check_choice("family", name, names())
    rng = np.random.default_rng([seed, *name.encode()])

    def log_uniform(low: int, high: int) -> int:
        """Draws a whole number; both ends are included."""
        return int(low * ((high + 1) / low) ** rng.random())

    # The order of the entries is that of the draws, so that each seed keeps its member.
    if name == "bert":
        heads = log_uniform(1, 12)
        sizes = {
            "layers": log_uniform(1, min(_MAX_BERT_LAYERS, _BERT_BASE // heads**2)),
            "hidden": 64 * heads,
            "heads": heads,
            "length": log_uniform(16, 512),
            "batch": log_uniform(1, 16),
            "vocabulary": log_uniform(1000, 30_000),
        }
    elif name in ("nmt", "rnnlm"):
        # Operations of a layer in one step, and of a step outside the layers.
        layer_ops, other_ops, max_hidden = (30, 20, 512) if name == "nmt" else (14, 8, 1024)
        layers = log_uniform(1, 8)
        sizes = {
            "layers": layers,
            "steps": log_uniform(2, _MAX_STEP_OPS // (layer_ops * layers + other_ops)),
            "batch": log_uniform(1, 64),
            "hidden": 64 * log_uniform(1, max_hidden // 64),
            "vocabulary": log_uniform(1000, 8000),
        }
    elif name in _NAMES:  # of images
        if name == "inception_v3":
            max_counts = {"early": 4, "middle": 8, "late": 4}
            sizes = {key: log_uniform(1, max_count) for key, max_count in max_counts.items()}
        else:
            depths = (18, 34, 50, 101) + ((152,) if name == "resnet" else ())
            sizes = {"depth": int(rng.choice(depths))}
        sizes["size"] = log_uniform(75, 299) if name == "inception_v3" else log_uniform(64, 256)
        sizes |= {"width": log_uniform(25, 100), "batch": log_uniform(1, 16)}
    else:
        sizes = {"ops": log_uniform(50, 3000), "seed": seed}
        if name in ("fork_join", "layered"):
            sizes["width"] = log_uniform(2, 32)
    prefix = f"synthetic:family={name}," if name in _SYNTHETIC_NAMES else f"{name}:"
    return prefix + ",".join(f"{key}={value}" for key, value in sizes.items())
