"""Families of networks: what is drawn can be built, and is neither small nor large."""

import numpy as np
import pytest

from placement import zoo
from placement.errors import UserError
from placement.runtime.models import extract
from placement.zoo import families, synthetic


class _Corner:
    """A generator whose every draw is the lowest or the highest there is."""

    def __init__(self, highest: bool):
        self._highest = highest

    def random(self) -> float:
        return 1 - 1e-9 if self._highest else 0.0

    def choice(self, values: tuple[int, ...]) -> int:
        return values[-1 if self._highest else 0]


def test_all_architectures_are_families():
    of_fixed_sizes = {"bert_base", "resnet50"}
    dynamic = {"decoder"}  # its graph depends on the shapes that are given
    kinds = {"chain", "fork_join", "layered", "series_parallel"}
    assert set(families.names()) == set(zoo.names()) - of_fixed_sizes - dynamic | kinds


@pytest.mark.parametrize("name", families.names())
def test_members_follow_their_seed(name):
    texts = [families.draw(name, seed) for seed in range(3)]
    assert len(set(texts)) == 3
    assert texts == [families.draw(name, seed) for seed in range(3)]
    assert all(name in text.partition(",")[0] for text in texts)


@pytest.mark.parametrize("name", families.names())
@pytest.mark.parametrize("highest", [False, True])
def test_smallest_and_largest_members(name, highest, monkeypatch):
    monkeypatch.setattr(np.random, "default_rng", lambda seed: _Corner(highest))
    text = families.draw(name, 0)
    monkeypatch.undo()
    if text.startswith(synthetic.NAME):
        num_ops, num_bytes = synthetic.build(text).num_ops, 0
    else:
        graph = extract.op_graph(zoo.build(text, weights=False), name=text).graph
        num_ops, num_bytes = graph.num_ops, graph.weight_bytes.sum()
    assert 50 <= num_ops <= 3000
    assert num_bytes <= 2 * 120e6  # float16


def test_unknown_family_is_refused():
    said = "unknown family 'chains': did you mean 'chain'[?] valid: bert, "
    with pytest.raises(UserError, match=said) as error:
        families.draw("chains", 0)
    assert "\n" not in str(error.value)
