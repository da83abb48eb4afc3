"""The benchmark of compilation, on two small graphs of one bucket."""

import pytest

from experiments.benchmarks import compilation

SMALL = "hsdag:variant=untrained,hidden_size=4,num_layers=1,levels=1,groups=4,num_samples=4"


@pytest.mark.parametrize("objective", ["makespan", "max_load"])
def test_graphs_of_buckets_share_programs(objective):
    graphs = [f"synthetic:family=layered,ops=34,seed={seed}" for seed in (0, 2)]
    first, second = compilation.measure_graphs(SMALL, graphs, objective)
    assert (first[0], second[0]) == tuple(graphs)
    assert first[2] == second[2]  # nodes and edges with padding
    assert second[-1] == "0"
