"""The benchmarks on small graphs and invented times."""

import pytest

from experiments.benchmarks import __main__ as program
from experiments.benchmarks import compilation, scale, search


@pytest.mark.nightly
def test_graphs_of_buckets_share_programs():
    small = "hsdag:variant=untrained,hidden_size=4,num_layers=1,levels=1,groups=4,num_samples=4"
    graphs = [f"synthetic:family=layered,ops=34,seed={seed}" for seed in (0, 2)]
    first, second = compilation.measure_graphs(small, graphs, "makespan")
    assert (first[0], second[0]) == tuple(graphs)
    assert first[2] == second[2]  # nodes and edges with padding
    assert second[-1] == "0"


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
