"""The frozen problems and their best known solutions."""

import itertools
import math

import jax
import numpy as np
import pytest

from placement import suite
from placement.errors import UserError
from placement.graphs import dag
from placement.problem import Problem
from placement.suite import archive, problem_file
from placement.types import SegmentCosts, TensorBytes
from placement.zoo import families
from tests import helpers
from tests.helpers import diamond, random_costs

VERSIONS = (1, suite.VERSION)
NAMES = [entry.name for entry in suite.list_entries()]
# A small one of each objective, one with an order, and one with co-location.
SAMPLE = (
    *("layered_50-makespan", "resnet34-serial", "bert_4-max_load", "known_optimum_100_4-makespan"),
    *("tarnawski_layer_bert24-subgraph", "resnet50_training-makespan"),
    *("cholesky_120-makespan", "decoder_6_training-makespan"),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_splits_are_disjoint(version):
    by_split = {split: suite.list_entries(split, version) for split in suite.SPLITS}
    for first, second in itertools.combinations(suite.SPLITS, 2):
        families = [{entry.family for entry in by_split[split]} for split in (first, second)]
        assert not families[0] & families[1]
    others = {entry.devices for split in ("validation", "test") for entry in by_split[split]}
    assert not others & {entry.devices for entry in by_split["training"]}
    names = [entry.name for entry in suite.list_entries(version=version)]
    assert sum(map(len, by_split.values())) == len(names) == len(set(names))


def test_test_families_are_new():
    new = {entry.family for entry in suite.list_entries("test")}
    assert len(new) >= 6
    assert not new & {entry.family for entry in suite.list_entries(version=1)}
    assert not new & set(families.names())


@pytest.mark.parametrize("version", VERSIONS)
def test_problems_match_the_index(version):
    entries = suite.list_entries(version=version)
    assert set(archive.read(version)) == {entry.name for entry in entries}
    for entry in entries:
        problem = suite.load(entry.name, version)
        sizes = problem.graph.num_ops, len(problem.devices), problem.objective, problem.order
        assert sizes == (entry.num_ops, entry.num_devices, entry.objective, None), entry.name
        if version > 1:  # the numbers do not tell which operations come first
            graph, number = problem.graph, np.arange(entry.num_ops)
            level = dag.levels(entry.num_ops, graph.senders, graph.receivers)
            correlation = np.corrcoef(level, number)[0, 1] * math.sqrt(entry.num_ops)
            assert abs(correlation) < 4, entry.name


def test_test_problems_vary_in_devices():
    entries = [entry for entry in suite.list_entries("test") if entry.objective == "makespan"]
    assert any(entry.num_devices == 2 for entry in entries)
    assert any("laptop" in entry.devices for entry in entries)
    problem = suite.load("cholesky_120-makespan")  # no device holds all operations
    assert np.isinf(problem.evaluate(problem.single_devices)).all()


@pytest.mark.parametrize("name", helpers.nightly_except(SAMPLE, NAMES))
def test_best_known_values(name):
    problem, best = suite.load(name), suite.best_known(name)
    if best.order is not None:
        problem = problem.with_order(best.order)
    value_s = float(problem.value_s(best.placement))
    assert value_s == pytest.approx(best.value_s, rel=1e-6)
    assert math.isnan(best.bound_s) or best.bound_s <= best.value_s * (1 + 1e-6)
    singles = np.asarray(problem.evaluate(problem.single_devices))
    assert value_s <= singles.min() * (1 + 1e-6)


def test_saved_problems_are_equal(tmp_path):
    graph, rng = diamond(), np.random.default_rng(0)
    edges = rng.random(graph.num_edges, np.float32)
    costs = random_costs(rng, graph, 2)._replace(
        tensor_bytes=TensorBytes(edges, 2 * edges),
        segment_costs=SegmentCosts(np.stack([edges, edges], axis=1), edges[:2]),
    )
    saved = Problem(graph, costs, "makespan", ("a", "b"))
    digest = problem_file.save(saved, tmp_path / "p.npz")
    read = problem_file.load(tmp_path / "p.npz", digest)
    assert read.devices == saved.devices
    assert vars(read.graph).keys() == vars(graph).keys()
    for field, value in vars(graph).items():
        np.testing.assert_array_equal(getattr(read.graph, field), value, field)
    assert isinstance(read.graph.output_shapes[0], tuple)
    jax.tree.map(np.testing.assert_array_equal, read.costs, costs)
    with pytest.raises(UserError, match="is not the file that the index names"):
        problem_file.load(tmp_path / "p.npz", "0" * 64)


@pytest.mark.parametrize("call", [suite.load, suite.best_known])
def test_unknown_names_are_refused(call):
    with pytest.raises(UserError, match="unknown problem 'nothing'"):
        call("nothing")


def test_archive_is_read_as_written(tmp_path, monkeypatch):
    known = {name: suite.best_known(name) for name in SAMPLE}
    known[SAMPLE[0]] = known[SAMPLE[0]]._replace(method="new", bound_s=math.nan)
    (tmp_path / "version_9").mkdir()
    monkeypatch.setattr(problem_file, "FOLDER", tmp_path)
    archive.write(known, 9)
    read = archive.read(9)
    assert read.keys() == known.keys()
    for name, best in known.items():
        assert read[name][2] == best.method
        np.testing.assert_array_equal(read[name][:2], best[:2])
        np.testing.assert_array_equal(read[name].placement, best.placement)
        np.testing.assert_array_equal(read[name].order, best.order)
