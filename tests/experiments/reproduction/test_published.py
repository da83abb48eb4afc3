import inspect
import json
import math
from pathlib import Path

import pytest

from experiments.reproduction import published
from placement import zoo
from placement.reporting.tables import comparison

DIRECTORY = Path(__file__).resolve().parents[3] / "third_party" / "published"
# The workloads that Tarnawski et al. publish and `placement.costs.workloads` reads.
WORKLOADS = {
    "layer_bert24_inference",
    "layer_gnmt_inference",
    "layer_resnet50_inference",
    "layer_resnet50_training",
    "operator_bert3_inference",
    "operator_bert3_training",
}
RANDOM = "hierarchical:grouping=random"


def _row(graph, method, predicted_s, seed=0):
    return {
        "graph": graph,
        "seed": seed,
        "method": method,
        "predicted_s": predicted_s,
        "measured_s": None,
        "search_s": 1.0,
    }


ROWS = [
    _row("inception_v3", "single:cpu", 0.008),
    _row("inception_v3", "single:gpu0", 0.004),
    _row("inception_v3", "single:gpu1", 0.005),
    _row("inception_v3", "hierarchical", 0.003),
    _row("inception_v3", RANDOM, 0.004),
    _row("inception_v3", "hsdag", 0.002),
    _row("inception_v3", "hsdag:variant=paper", 0.004),
    _row("inception_v3", "scotch", math.inf),
    _row("inception_v3", "min_cut", 0.00300001),
    _row("unpublished", "single:cpu", 1.0),
]


def _table(name):
    return next(table for table in published.read(DIRECTORY) if table.name == name)


def _pairs(paired, label):
    row = next(row for row in paired.rows if row.label == label)
    return dict(zip(paired.methods, row.pairs, strict=True))


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.json")), ids=lambda path: path.stem)
def test_a_file_names_its_source_and_graphs_that_exist(path):
    table = _table(path.stem)
    assert table.title
    assert any(str(year) in table.title for year in range(2017, 2030))
    assert table.rows
    for row in table.rows:
        assert row.values or row.reduction
        for graph in row.graphs:
            assert graph in WORKLOADS or graph.split(":")[0] in zoo.names()
    assert table.same_costs == (table.rows[0].graphs[0] in WORKLOADS)


def test_an_alias_is_the_same_graph():
    rows = _table("hierarchical_planner").rows
    aliases = {alias: row.graphs[0] for row in rows for alias in row.aliases}
    assert aliases.pop("nmt") == "nmt:layers=2"
    for alias, graph in aliases.items():  # a step of training of the same, in other sizes
        assert set(graph.split(",")) < set(alias.split(",")) or alias == f"{graph}:training=1"
        assert "training=1" in alias
    assert inspect.signature(zoo.nmt).parameters["layers"].default == 2


def test_printed_reductions_follow_from_the_rounded_values():
    rows = [row for table in published.read(DIRECTORY) for row in table.rows if row.values]
    checked = 0
    for row in rows:
        if row.reduction is None:
            continue
        known = [row.values[m] for m in row.reduction.against if row.values[m] is not None]
        # Values have two decimals, so either may be off by half a hundredth.
        low, high = ((min(known) + e) for e in (-0.005, 0.005))
        own = row.values[row.reduction.method]
        assert 100 * (1 - (own + 0.005) / low) <= row.reduction.percent
        assert row.reduction.percent <= 100 * (1 - (own - 0.005) / high)
        checked += 1
    assert checked == 12


def test_ratios_are_to_the_best_single_device_of_the_same_source():
    paired, over_expert = published.pair([_table("hierarchical_planner")], ROWS, "makespan")
    assert [row.published.accelerators for row in paired.rows] == [2, 2, 2, 2, 4, 8]
    pairs = _pairs(paired, "inception_v3")
    assert pairs["CPU only"][:2] == pytest.approx((2.0, 0.61 / 0.15))
    assert pairs["GPU only"][:2] == (1.0, 1.0)
    assert pairs["hierarchical"][:2] == pytest.approx((0.75, 0.13 / 0.15))
    assert math.isnan(pairs["scotch"].ours)  # failed
    assert pairs["scotch"].theirs == pytest.approx(0.93 / 0.15)
    assert "hsdag" not in pairs  # of ours alone
    assert paired.rows[0].our_reductions["hierarchical"][0] == pytest.approx(1 / 300001)
    assert paired.rows[0].published.reduction.percent == pytest.approx(16.3)
    nmt = _pairs(paired, "nmt:layers=2")  # of theirs alone, the GPU out of memory
    assert nmt["hierarchical"].theirs == pytest.approx(0.84 / 6.46)
    assert math.isnan(nmt["hierarchical"].ours)
    assert math.isinf(nmt["GPU only"].theirs)
    assert (paired.reference, over_expert.reference) == ("best single device", "human_expert")
    theirs = _pairs(over_expert, "nmt:layers=2")["hierarchical"].theirs
    assert theirs == pytest.approx(0.84 / 2.13)


def test_a_table_without_a_graph_in_common_is_left_out():
    rows = [row for row in ROWS if row["graph"] == "unpublished"]
    assert published.pair(published.read(DIRECTORY), rows, "makespan") == ()
    names = [p.source.name for p in published.pair(published.read(DIRECTORY), ROWS, "makespan")]
    planner = ["hierarchical_planner"] * 2  # over the best single device, and the human expert
    assert names == [*planner, "hierarchical_random_groups", "hsdag"]


def test_a_table_of_other_methods_than_ours_is_left_out():
    rows = [_row("resnet50", "single:cpu", 4.0), _row("resnet50", "hsdag", 4.0)]
    result = published.pair(published.read(DIRECTORY), rows, "makespan")
    assert [paired.source.name for paired in result] == ["hsdag"]


def test_out_of_memory_is_shown_on_both_sides():
    graph = _table("hierarchical_planner").rows[3].aliases[-1]
    rows = [_row(graph, "single:cpu", 6.0), _row(graph, "hierarchical", 1.0)]
    full = {"status": "failed: out of memory"}
    rows += [_row(graph, "single:gpu0", math.inf) | full, _row(graph, "scotch", math.inf) | full]
    paired, _ = published.pair([_table("hierarchical_planner")], rows, "makespan")
    lines = published.markdown(paired).splitlines()
    (cells,) = ([c.strip() for c in line.split("|")] for line in lines if "nmt:layers=2" in line)
    assert "OOM vs OOM" in cells
    assert "OOM vs 0.497 (3.21 s)" in cells
    table = comparison.markdown(comparison.compare(rows, ()))
    assert "| OOM |" in table


def test_an_alias_is_paired():
    rows = [_row("nmt", "single:CPU", 2.0), _row("nmt", "hierarchical", 1.0)]
    paired, _ = published.pair([_table("hierarchical_planner")], rows, "serial")
    assert _pairs(paired, "nmt:layers=2")["hierarchical"].ours == 0.5


def test_random_groups_are_the_best_median_and_worst_of_the_seeds():
    rows = [_row("resnet:depth=152", "single:cpu", 4.0, seed) for seed in range(3)]
    rows += [
        _row("resnet:depth=152", RANDOM, value, seed) for seed, value in enumerate((9.0, 5.0, 4.0))
    ]
    rows += [_row("resnet:depth=152", "hierarchical", 3.0, seed) for seed in range(3)]
    (paired,) = published.pair([_table("hierarchical_random_groups")], rows, "makespan")
    pairs = _pairs(paired, "resnet:depth=152")
    values = [pairs[f"{RANDOM}, {which}"].our_value for which in ("best", "median", "worst")]
    assert values == [4.0, 5.0, 9.0]
    assert paired.rows[1].our_reductions["hierarchical"][0] == pytest.approx(0.25)


def test_arguments_are_distinguished_except_order_and_the_papers_variant():
    names = ["single:cpu", "hierarchical:variant=paper", "hierarchical:variant=released"]
    names += ["hierarchical:variant=paper,grouping=random", "hierarchical:grouping=none"]
    rows = [_row("resnet:depth=152", name, 1.0 + i) for i, name in enumerate(names)]
    (paired,) = published.pair([_table("hierarchical_random_groups")], rows, "makespan")
    pairs = _pairs(paired, "resnet:depth=152")
    assert {method: pair.our_value for method, pair in pairs.items() if pair.our_value > 1} == {
        "hierarchical:variant=paper": 2.0,
        "hierarchical:variant=paper,grouping=random, best": 4.0,
        "hierarchical:variant=paper,grouping=random, median": 4.0,
        "hierarchical:variant=paper,grouping=random, worst": 4.0,
    }


def test_the_largest_reduction_is_over_graphs_and_baselines_and_names_missing_ones():
    rows = [*ROWS, _row("resnet50", "single:cpu", 4.0), _row("resnet50", "hsdag", 3.0)]
    (paired,) = published.pair([_table("hsdag")], rows, "makespan")
    against_cpu, against_any = paired.rows
    assert against_cpu.our_reductions == {
        "hsdag": pytest.approx((0.75, 0.5)),
        "hsdag:variant=paper": pytest.approx((0.5, 0.0)),  # a slow CPU's doing alone
    }
    assert against_cpu.published.reduction.percent == pytest.approx(58.2)
    assert against_any.our_reductions["hsdag"][0] == pytest.approx(0.75)
    assert against_any.label.endswith("; ours without bert_base")
    text = published.markdown(paired)
    assert (
        "| 75.0% (hsdag; 50.0% against the best single device), "
        "50.0% (hsdag:variant=paper; 0.0% against the best single device) vs 58.2% |"
    ) in text


def test_values_of_the_same_costs_share_our_unit_and_only_one_objective_counts():
    graph = "operator_bert3_inference"
    rows = [_row(graph, "single:acc0", 49.0), _row(graph, "ideals_dp", 27.919)]
    (paired,) = published.pair(published.read(DIRECTORY), rows, "max_load")
    pair = _pairs(paired, graph)["ideals_dp"]
    assert pair.ours == pair.theirs == pytest.approx(27.919 / 49.0)
    assert {row.published.accelerators for row in paired.rows} == {3, 6}
    assert (
        "**0.570 (27.919)** vs 0.570 (27.919) | - | - vs **0.447 (21.908)** |"
        in published.markdown(paired)
    )
    (paired,) = published.pair(published.read(DIRECTORY), rows, "subgraph")
    assert _pairs(paired, graph)["ideals_dp"].their_value == 414.44
    assert published.pair(published.read(DIRECTORY), rows, "serial") == ()


def test_tables_show_pairs_dashes_and_the_source_below():
    paired, _ = published.pair([_table("hierarchical_planner")], ROWS, "makespan")
    lines = published.markdown(paired).splitlines()
    assert lines[0] == "### Published figures: hierarchical_planner"
    assert lines[2].startswith("| graph | accelerators, theirs | CPU only | GPU only |")
    assert lines[4] == (
        "| inception_v3 | 2 | 2.000 vs 4.067 (0.61 s) | 1.000 vs 1.000 (0.15 s) "
        "| - vs 1.000 (0.15 s) | - vs 6.200 (0.93 s) | **0.750** vs 5.467 (0.82 s) "
        "| **0.750** vs **0.867 (0.13 s)** | 0.0% vs 16.3% |"
    )
    assert lines[5].startswith("| resnet:depth=152 | 2 | - | - vs **1.000 (1.18 s)** |")
    below = "\n".join(lines[10:])
    for text in (paired.source.title, paired.source.table, paired.source.differs):
        assert text in below


def test_no_directory_has_no_tables(tmp_path):
    assert published.read(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": ""}, "empty 'title'"),
        ({"differs": ""}, "empty 'differs'"),
        ({"tabel": "1"}, "tabel"),
        ({"rows": [{"graphs": ["a", "b"], "values": {"x": 1.0}}]}, r"\['a', 'b'\]"),
        ({"rows": [{"graphs": ["a"], "values": {"x": "fast"}}]}, "fast"),
        ({"rows": [{"values": {"x": 1.0}}]}, "graphs"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path, change, message):
    good = {"title": "t", "table": "1", "differs": "d", "unit": "s", "rows": []}
    (tmp_path / "good.json").write_text(json.dumps(good))
    assert published.read(tmp_path)[0].name == "good"
    (tmp_path / "odd.json").write_text(json.dumps({**good, **change}))
    with pytest.raises(ValueError, match=message) as error:
        published.read(tmp_path)
    assert "odd.json" in str(error.value)
