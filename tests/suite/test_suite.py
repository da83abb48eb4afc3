"""The frozen problems and their best known solutions."""

import itertools
import math

import jax
import numpy as np
import pytest

from placement import suite
from placement.errors import UserError
from placement.problem import Problem
from placement.suite import archive, problem_file
from placement.types import SegmentCosts, TensorBytes
from tests import helpers
from tests.helpers import diamond, random_costs

NAMES = [entry.name for entry in suite.list_entries()]
# A small one of each objective, one with an order, and one with co-location.
SAMPLE = (
    *("layered_50-makespan", "resnet34-serial", "bert_4-max_load", "known_optimum_100_4-makespan"),
    *("tarnawski_layer_bert24-subgraph", "resnet50_training-makespan"),
)


def test_splits_are_disjoint():
    by_split = {split: suite.list_entries(split) for split in suite.SPLITS}
    for first, second in itertools.combinations(suite.SPLITS, 2):
        families = [{entry.family for entry in by_split[split]} for split in (first, second)]
        assert not families[0] & families[1]
    others = {entry.devices for split in ("validation", "test") for entry in by_split[split]}
    assert not others & {entry.devices for entry in by_split["training"]}
    assert sum(map(len, by_split.values())) == len(NAMES) == len(set(NAMES))


def test_problems_match_the_index():
    assert set(archive.read()) == set(NAMES)
    for entry in suite.list_entries():
        problem = suite.load(entry.name)
        sizes = problem.graph.num_ops, len(problem.devices), problem.objective, problem.order
        assert sizes == (entry.num_ops, entry.num_devices, entry.objective, None), entry.name


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


def test_archive_is_read_as_written(tmp_path):
    known = {name: suite.best_known(name) for name in SAMPLE}
    known[SAMPLE[0]] = known[SAMPLE[0]]._replace(method="new", bound_s=math.nan)
    archive.write(known, tmp_path)
    read = archive.read(tmp_path)
    assert read.keys() == known.keys()
    for name, best in known.items():
        assert read[name][2] == best.method
        np.testing.assert_array_equal(read[name][:2], best[:2])
        np.testing.assert_array_equal(read[name].placement, best.placement)
        np.testing.assert_array_equal(read[name].order, best.order)
