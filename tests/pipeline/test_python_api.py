"""`placement.place`: what it gives, and how it refuses; docs/PYTHON.md has it on devices."""

import json
import re

import pytest

import placement
from placement.errors import UserError

SMALL = "synthetic:family=layered,ops=12,seed=1"
QUICK = {"devices": "roofline:cpu,gpu", "method": "heft", "evaluate": "simulate"}


def test_a_graph_is_placed_as_by_the_task(tmp_path):
    placed = placement.place(SMALL, workdir=tmp_path / "run", **QUICK)
    assert json.loads((tmp_path / "run/summary.json").read_text()) == placed.summary
    assert {row["method"] for row in placed.summary["rows"]} >= {"heft", "random"}
    assert len(placed.placement) == 12
    assert {*placed.placement.values()} <= {*placed.summary["devices"], "cpu", "gpu"}
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="is there already"):
        placed.deploy(tmp_path / "there")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bugdet": 9}, "unknown key 'bugdet': did you mean 'budget'?"),
        ({"budget": "many"}, "budget='many' is no int; give one"),
        ({"method": "anneal"}, "unknown method 'anneal': did you mean 'annealing'?"),
    ],
)
def test_mistakes_are_told_in_one_line(given, said, tmp_path):
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        placement.place(SMALL, workdir=tmp_path, **(QUICK | given))
    assert "\n" not in str(caught.value)


def test_what_is_no_path_is_refused(tmp_path):
    with pytest.raises(UserError, match="model is of type dict; give a path"):
        placement.place({}, workdir=tmp_path, **QUICK)
