"""Families of networks: what is drawn can be built, and is neither small nor large."""

import numpy as np
import pytest

from placement import zoo
from placement.errors import UserError
from placement.runtime.models import extract
from placement.types import OpGraph
from placement.zoo import families, synthetic

MILLION = 10**6


class _Corner:
    """A generator whose every draw is the lowest or the highest there is."""

    def __init__(self, highest: bool):
        self._highest = highest

    def random(self) -> float:
        return 1 - 1e-9 if self._highest else 0.0

    def choice(self, values: tuple[int, ...]) -> int:
        return values[-1 if self._highest else 0]


def _graph(text: str) -> OpGraph:
    if text.startswith(synthetic.NAME):
        return synthetic.build(text)
    return extract.op_graph(zoo.build(text, weights=False), name=text).graph


def _is_of_size(text: str) -> bool:
    graph = _graph(text)
    # float16; what synthetic graphs have is only a number.
    small = text.startswith(synthetic.NAME) or graph.weight_bytes.sum() <= 2 * 120 * MILLION
    return 50 <= graph.num_ops <= 3000 and small


def test_every_architecture_of_the_zoo_is_a_family():
    of_fixed_sizes = {"bert_base", "resnet50"}
    dynamic = {"decoder"}  # its graph depends on the shapes that are given
    kinds = {"chain", "fork_join", "layered", "series_parallel"}
    assert set(families.names()) == set(zoo.names()) - of_fixed_sizes - dynamic | kinds


@pytest.mark.parametrize("name", families.names())
def test_members_differ_by_seed_and_are_repeated_by_it(name):
    texts = [families.draw(name, seed) for seed in range(20)]
    assert len(set(texts)) == 20
    assert texts == [families.draw(name, seed) for seed in range(20)]
    assert all(name in text.partition(",")[0] for text in texts)


@pytest.mark.parametrize("name", families.names())
@pytest.mark.parametrize("seed", range(2))
def test_members_are_of_the_stated_size(name, seed):
    assert _is_of_size(families.draw(name, seed))


@pytest.mark.parametrize("name", families.names())
@pytest.mark.parametrize("highest", [False, True])
def test_so_are_the_smallest_and_the_largest(name, highest, monkeypatch):
    monkeypatch.setattr(np.random, "default_rng", lambda seed: _Corner(highest))
    text = families.draw(name, 0)
    monkeypatch.undo()
    assert _is_of_size(text)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_many_layers_leave_few_steps(num_layers, monkeypatch):
    draws = iter([np.log(num_layers + 0.5) / np.log(9)] + [1 - 1e-9] * 9)
    rng = type("Generator", (), {"random": lambda self: next(draws)})()
    monkeypatch.setattr(np.random, "default_rng", lambda seed: rng)
    text = families.draw("nmt", 0)
    monkeypatch.undo()
    assert f"layers={num_layers}," in text
    assert 2800 < _graph(text).num_ops <= 3000


def test_an_unknown_family():
    said = "unknown family 'chains': did you mean 'chain'[?] valid: bert, "
    with pytest.raises(UserError, match=said) as error:
        families.draw("chains", 0)
    assert "\n" not in str(error.value)
