"""Random members of families of networks, for what is to carry over from graph to graph.

A member is a text that `config.graph` takes: `placement.zoo.build` builds it, or
`placement.zoo.synthetic.build` if it begins with 'synthetic:'. A training set is a list of texts.

Sizes are log-uniform, so that small and large members are equally frequent:

    family         what there is of                   how large it is
    bert           layers 1-24                        heads 1-12, length 16-512,
                                                      vocabulary 1000-30000
    inception_v3   early 1-4, middle 1-8, late 1-4    size 75-299, width 25-100
    nmt            layers 1-8, steps from 2           hidden 64-512, vocabulary 1000-8000
    resnet         depth 18, 34, 50, 101 or 152       size 64-256, width 25-100
    rnnlm          layers 1-8, steps from 2           hidden 64-1024, vocabulary 1000-8000
    two_stream     depth 18, 34, 50 or 101            size 64-256, width 25-100
    chain, fork_join, layered, series_parallel:
                   ops 50-3000                        width 2-32 where there is one

Heads have 64 numbers, hidden sizes are multiples of 64, batches 1-16, of recurrent networks 1-64.
Every member has 50 to 3000 operations, constants included, which bounds the steps. A network has at
most 120 million weights, which bounds BERT's layers, and is built in about a second.
"""

from collections.abc import Callable

import numpy as np

from placement import arguments

_MOST_OPS = 2900  # that steps have; at most 88 more are of no step
_MOST_BERT_LAYERS = 24
_BERT_BASE = 12 * 12**2  # layers times heads squared, which weights are proportional to

_Sizes = dict[str, int]


def names() -> tuple[str, ...]:
    """Returns the families `draw` knows."""
    return (*_NETWORKS, *_SYNTHETIC)


def draw(name: str, seed: int) -> str:
    """Draws a member of a family; equal seeds give equal texts.

    Raises:
      UserError: no family has that name.
    """
    rng = np.random.default_rng([seed, *name.encode()])
    if name in _NETWORKS:
        sizes = _NETWORKS[name](rng)
        return f"{name}:{_listed(sizes)}"
    if name in _SYNTHETIC:
        sizes = {"ops": _between(rng, 50, 3000), "seed": seed, **_SYNTHETIC[name](rng)}
        return f"synthetic:family={name},{_listed(sizes)}"
    raise arguments.unknown("family", name, names())


def _listed(sizes: _Sizes) -> str:
    return ",".join(f"{key}={value}" for key, value in sizes.items())


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    """Draws log-uniformly, both ends included."""
    return int(low * ((high + 1) / low) ** rng.random())


def _bert(rng: np.random.Generator) -> _Sizes:
    heads = _between(rng, 1, 12)
    return {
        "layers": _between(rng, 1, min(_MOST_BERT_LAYERS, _BERT_BASE // heads**2)),
        "hidden": 64 * heads,
        "heads": heads,
        "length": _between(rng, 16, 512),
        "batch": _between(rng, 1, 16),
        "vocabulary": _between(rng, 1000, 30_000),
    }


def _images(rng: np.random.Generator, least: int, most: int) -> _Sizes:
    return {
        "size": _between(rng, least, most),
        "width": _between(rng, 25, 100),
        "batch": _between(rng, 1, 16),
    }


def _inception_v3(rng: np.random.Generator) -> _Sizes:
    counts = {"early": 4, "middle": 8, "late": 4}
    modules = {key: _between(rng, 1, most) for key, most in counts.items()}
    return modules | _images(rng, 75, 299)


def _resnet(rng: np.random.Generator) -> _Sizes:
    return {"depth": int(rng.choice((18, 34, 50, 101, 152)))} | _images(rng, 64, 256)


def _two_stream(rng: np.random.Generator) -> _Sizes:
    return {"depth": int(rng.choice((18, 34, 50, 101)))} | _images(rng, 64, 256)


def _nmt(rng: np.random.Generator) -> _Sizes:
    return _recurrent(rng, 30, 20, widest=512)


def _rnnlm(rng: np.random.Generator) -> _Sizes:
    return _recurrent(rng, 14, 8, widest=1024)


def _recurrent(rng: np.random.Generator, ops: int, more_ops: int, *, widest: int) -> _Sizes:
    """Draws sizes of a network with `ops` operations a layer and step, `more_ops` a step."""
    layers = _between(rng, 1, 8)
    return {
        "layers": layers,
        "steps": _between(rng, 2, _MOST_OPS // (ops * layers + more_ops)),
        "batch": _between(rng, 1, 64),
        "hidden": 64 * _between(rng, 1, widest // 64),
        "vocabulary": _between(rng, 1000, 8000),
    }


def _width(rng: np.random.Generator) -> _Sizes:
    return {"width": _between(rng, 2, 32)}


_NETWORKS: dict[str, Callable[[np.random.Generator], _Sizes]] = {
    "bert": _bert,
    "inception_v3": _inception_v3,
    "nmt": _nmt,
    "resnet": _resnet,
    "rnnlm": _rnnlm,
    "two_stream": _two_stream,
}
# What a family draws beside its operations.
_SYNTHETIC: dict[str, Callable[[np.random.Generator], _Sizes]] = {
    "chain": lambda rng: {},
    "fork_join": _width,
    "layered": _width,
    "series_parallel": lambda rng: {},
}
