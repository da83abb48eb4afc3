"""A hundred inputs that are nearly right, the same at every run; `make fuzz` has thousands."""

import random
from pathlib import Path

import pytest

from tests.robustness import fuzz, mutators

COUNT = 104  # 94 workloads, models and flags, 8 run directories, 2 interrupted commands


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzz.finished_run(tmp_path_factory.mktemp("fuzz") / "finished")


@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_the_command_line_answers_whatever_it_is_given(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seeds = [seed for drawn_kind, seed in fuzz.drawn(COUNT) if drawn_kind == kind]
    assert seeds
    # Only damaged run directories start from a finished run, which takes longest.
    is_damaged = kind == "run_directory"
    finished = request.getfixturevalue("finished") if is_damaged else tmp_path / "none"
    outcomes = [fuzz.try_one(kind, seed, finished) for seed in seeds]
    assert [o for o in outcomes if o.complaint] == []


def test_mutations_are_repeatable_and_differ_from_what_they_are_of() -> None:
    text = '{"nodes": [{"id": 0, "size": 4}], "edges": []}'
    for mutate, of in ((mutators.of_json, text), (mutators.of_bytes, text.encode())):
        once, again = ([mutate(random.Random(seed), of) for seed in range(50)] for _ in range(2))
        assert once == again
        assert len({*once} - {of}) > 30
