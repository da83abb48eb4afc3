"""How sets of operations that overlap become one."""

import random

from placement.runtime.models import colocation


def test_overlapping_sets_are_merged():
    draw = random.Random(0)
    sizes = set()
    for _ in range(200):
        sets = [
            frozenset(draw.sample(range(30), draw.randint(1, 4))) for _ in range(draw.randint(0, 9))
        ]
        merged: list[frozenset[int]] = []
        for each in sets:
            apart = [other for other in merged if other.isdisjoint(each)]
            together = [other for other in merged if not other.isdisjoint(each)]
            merged = [*apart, each.union(*together)]
        found = colocation.merge_overlapping(sets)
        assert set(found) == set(merged)
        assert found == sorted(found, key=min)
        sizes.add(len(found))
    assert len(sizes) > 4


def test_chains_of_pairs_are_merged():
    pairs = [frozenset((i, i + 1)) for i in range(20_000)]
    assert colocation.merge_overlapping(pairs) == [frozenset(range(20_001))]
