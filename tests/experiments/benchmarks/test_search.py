"""The benchmark of searches, on the smallest problem of the suite."""

from experiments.benchmarks import search


def test_ratios_improve_with_time():
    ratios = search.measure_ratios("search", "known_optimum_100_4-makespan", (0.1, 2.0))
    cold_first, cold_last, first, last = ratios
    assert cold_first >= cold_last >= 1
    assert first >= last >= 1
    assert last < 1.2
