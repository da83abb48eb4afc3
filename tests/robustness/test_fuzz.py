"""Some hundred inputs that are nearly right, the same at every run; `make fuzz` has thousands."""

import random
from pathlib import Path

import pytest

from tests.robustness import fuzz, mutators

COUNT = 300
_SHARE = 20  # a test


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzz.finished_run(tmp_path_factory.mktemp("fuzz") / "finished")


@pytest.mark.parametrize("first_seed", range(0, COUNT, _SHARE))
def test_the_command_line_answers_whatever_it_is_given(first_seed: int, finished: Path) -> None:
    outcomes = [fuzz.try_one(*pair, finished) for pair in fuzz.drawn(_SHARE, first_seed)]
    assert [o for o in outcomes if o.complaint] == []


def test_mutations_are_repeatable_and_differ_from_what_they_are_of() -> None:
    text = '{"nodes": [{"id": 0, "size": 4}], "edges": []}'
    for mutate, of in ((mutators.of_json, text), (mutators.of_bytes, text.encode())):
        once, again = ([mutate(random.Random(seed), of) for seed in range(50)] for _ in range(2))
        assert once == again
        assert len({*once} - {of}) > 30
