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

from collections.abc import Callable

import numpy as np

from placement import arguments

_MAX_STEP_OPS = 2900  # operations in all steps; at most 88 more belong to no step
_MAX_BERT_LAYERS = 24
_BERT_BASE = 12 * 12**2  # layers times heads squared; the number of weights is proportional to it

_Sizes = dict[str, int]


def names() -> tuple[str, ...]:
    """Returns the families that `draw` takes."""
    return (*_NETWORKS, *_SYNTHETIC)


def draw(name: str, seed: int) -> str:
    """Draws a member of a family; equal seeds give equal texts.

    Raises:
      UserError: no family has that name.
    """
    rng = np.random.default_rng([seed, *name.encode()])
    if name in _NETWORKS:
        prefix, sizes = f"{name}:", _NETWORKS[name](rng)
    elif name in _SYNTHETIC:
        sizes = {"ops": _log_uniform(rng, 50, 3000), "seed": seed, **_SYNTHETIC[name](rng)}
        prefix = f"synthetic:family={name},"
    else:
        raise arguments.make_choice_error("family", name, names())
    return prefix + ",".join(f"{key}={value}" for key, value in sizes.items())


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    """Draws a whole number log-uniformly; both ends are included."""
    return int(low * ((high + 1) / low) ** rng.random())


def _bert(rng: np.random.Generator) -> _Sizes:
    heads = _log_uniform(rng, 1, 12)
    return {
        "layers": _log_uniform(rng, 1, min(_MAX_BERT_LAYERS, _BERT_BASE // heads**2)),
        "hidden": 64 * heads,
        "heads": heads,
        "length": _log_uniform(rng, 16, 512),
        "batch": _log_uniform(rng, 1, 16),
        "vocabulary": _log_uniform(rng, 1000, 30_000),
    }


def _image_sizes(rng: np.random.Generator, min_size: int, max_size: int) -> _Sizes:
    return {
        "size": _log_uniform(rng, min_size, max_size),
        "width": _log_uniform(rng, 25, 100),
        "batch": _log_uniform(rng, 1, 16),
    }


def _inception_v3(rng: np.random.Generator) -> _Sizes:
    max_counts = {"early": 4, "middle": 8, "late": 4}
    counts = {key: _log_uniform(rng, 1, max_count) for key, max_count in max_counts.items()}
    return counts | _image_sizes(rng, 75, 299)


def _resnet(rng: np.random.Generator, depths: tuple[int, ...]) -> _Sizes:
    return {"depth": int(rng.choice(depths))} | _image_sizes(rng, 64, 256)


def _recurrent(rng: np.random.Generator, layer_ops: int, other_ops: int, max_hidden: int) -> _Sizes:
    """Draws the sizes of a recurrent network.

    Args:
      rng: the source of randomness.
      layer_ops: operations of one layer in one step.
      other_ops: operations of a step outside the layers.
      max_hidden: the largest hidden size.
    """
    layers = _log_uniform(rng, 1, 8)
    return {
        "layers": layers,
        "steps": _log_uniform(rng, 2, _MAX_STEP_OPS // (layer_ops * layers + other_ops)),
        "batch": _log_uniform(rng, 1, 64),
        "hidden": 64 * _log_uniform(rng, 1, max_hidden // 64),
        "vocabulary": _log_uniform(rng, 1000, 8000),
    }


def _width(rng: np.random.Generator) -> _Sizes:
    return {"width": _log_uniform(rng, 2, 32)}


_NETWORKS: dict[str, Callable[[np.random.Generator], _Sizes]] = {
    "bert": _bert,
    "inception_v3": _inception_v3,
    "nmt": lambda rng: _recurrent(rng, layer_ops=30, other_ops=20, max_hidden=512),
    "resnet": lambda rng: _resnet(rng, (18, 34, 50, 101, 152)),
    "rnnlm": lambda rng: _recurrent(rng, layer_ops=14, other_ops=8, max_hidden=1024),
    "two_stream": lambda rng: _resnet(rng, (18, 34, 50, 101)),
}
# The sizes that a family draws besides its number of operations.
_SYNTHETIC: dict[str, Callable[[np.random.Generator], _Sizes]] = {
    "chain": lambda rng: {},
    "fork_join": _width,
    "layered": _width,
    "series_parallel": lambda rng: {},
}
