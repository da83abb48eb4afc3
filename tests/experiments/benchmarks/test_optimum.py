"""The benchmark of known optima, on one small graph."""

import pytest

from experiments.benchmarks import optimum
from placement.errors import UserError


def test_the_table_has_a_gap_for_every_method(monkeypatch, capsys):
    monkeypatch.setattr(optimum, "_SIZES", ((30, 3),))
    monkeypatch.setattr(optimum, "_SEEDS", range(1))
    # Searches end by their number of evaluations, not by the clock.
    monkeypatch.setattr(optimum, "_UNLIMITED", 1_000)
    monkeypatch.setattr(optimum, "METHODS", ("heft", "lns"))
    optimum.run("600")
    out, err = capsys.readouterr()
    assert "synthetic:family=known_optimum,ops=30,devices=3,seed=0: heft " in err
    (row,) = [line for line in out.splitlines() if "%" in line]
    assert "30" in row


def test_rows_have_the_mean_gap_of_each_size():
    def make_result(size: tuple[int, int], gap: float) -> optimum.Result:
        return optimum.Result(*size, dict.fromkeys(optimum.METHODS, gap))

    results = [make_result((9, 2), 0.1), make_result((9, 2), 0.3), make_result((50, 4), 0.5)]
    assert optimum.make_rows(results) == [["9", "2", *["20.0%"] * 5], ["50", "4", *["50.0%"] * 5]]


@pytest.mark.parametrize("seconds", [("0",), ("many",), ("nan",), ("1", "2")])
def test_a_wrong_time_limit_is_refused_in_one_line(seconds):
    with pytest.raises(UserError, match="optimum takes the seconds of each search") as error:
        optimum.run(*seconds)
    assert "\n" not in str(error.value)
