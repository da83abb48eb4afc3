"""The benchmarks on small graphs and invented times."""

import pytest

from experiments.benchmarks import __main__ as program
from experiments.benchmarks import scale, search


@pytest.mark.nightly
def test_search_improves_with_time():
    ratios = search.measure_ratios("search", "known_optimum_100_4-makespan", (0.1, 2.0))
    cold_first, cold_last, first, last = ratios
    assert cold_first >= cold_last >= 1
    assert 1.2 > first >= last >= 1


def test_exponent_of_growth():
    assert scale.format_exponent((10, 100, 1000), [7.0, 2.0, 200.0]) == "2.00"
    assert scale.format_exponent((10,), [1.0]) == ""


@pytest.mark.parametrize("words", [["scale", "10", "many"], ["unseen"], ["searches"]])
def test_mistakes_are_one_line(words, capsys):
    with pytest.raises(SystemExit) as ended:
        program.main(["benchmarks", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
