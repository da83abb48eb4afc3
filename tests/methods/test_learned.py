"""Learned methods by their names: hyper-parameters, and what their policies read."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from placement import methods
from placement.errors import UserError
from placement.learning import trainer
from placement.methods import learned, pretrained
from placement.problem import Problem
from placement.solvers.limits import SearchLimits
from placement.types import Status
from tests import helpers

NAMED = [
    (name, variant)
    for name, method in methods.of_kind("learned").items()
    for variant in method.load().variants
]


@pytest.mark.parametrize(("name", "variant"), NAMED)
def test_variants_place_every_operation(name, variant):
    """Abstractly: nothing is compiled."""
    problem = helpers.random_problem()
    method = learned.make(f"{name}:variant={variant}", 3)
    graph, node = method.read(problem)

    def drawn():
        params = method.policy.init(jax.random.key(0), graph)
        return method.policy.sample(params, jax.random.key(1), graph, 2)

    num_nodes = jax.eval_shape(drawn).placement.shape[-1]
    assert len(node) == problem.graph.num_ops
    assert num_nodes > node.max()
    assert method.single_devices_fail == (variant == "released")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "ratio"),
    [
        # On a chain, whose transfers take a hundred times as long as an operation.
        ("placeto:variant=tuned,rounds=3", 0.6),
        pytest.param(
            *("hierarchical:variant=tuned,hidden_size=16,learning_rate=0.01", 0.6),
            marks=pytest.mark.nightly,
        ),
        pytest.param("doppler:variant=tuned,hidden_size=16", 0.6, marks=pytest.mark.nightly),
        # On branches, whose optimum is 0.66 of the best single device.
        (
            "scheduler:hidden_size=16,learning_rate=0.01,entropy_weight=0,baseline=leave_one_out",
            0.85,
        ),
        pytest.param(
            *("colocrl:variant=tuned,hidden_size=16,learning_rate=0.003,entropy_weight=0", 0.85),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_training_lowers_mean_latency(method, ratio):
    """Of all samples of a step: that of a policy which does not learn stays as it was.

    GiPH, which needs more steps, is tested with its policy.
    """
    if ratio < 0.8:
        graph = helpers.chain(6)
        costs = helpers.unit_costs(graph, compute_s=np.ones((6, 2), np.float32))
    else:
        graph = helpers.fork_join(branches=3, length=2)
        costs = helpers.random_costs(np.random.default_rng(5), graph, 2)
    problem = helpers.as_problem(graph, costs, "makespan")
    search = learned.Search.prepare(f"{method},num_samples=16", problem)
    means_s: list[float] = []
    limits = SearchLimits(600.0, 10**9, stop=lambda: len(means_s) >= 56)
    search.run(
        search.start(0, limits),
        limits,
        lambda report, _: means_s.extend(record["mean_s"] for record in report.records),
    )
    assert np.mean(means_s[-10:]) < ratio * np.mean(means_s[:4])


def test_features_are_selected_by_name():
    problem = helpers.random_problem()
    all_features, two = (
        learned.make(name, 3).read(problem).graph.nodes["features"]
        for name in ("hsdag", "hsdag:features=degrees+fractal")
    )
    assert two.shape[1] == 3 < all_features.shape[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alexrl", "unknown method 'alexrl'; valid: hsdag, hierarchical, colocrl, placeto"),
        ("colocrl:variant=released", "unknown variant 'released'; valid: paper, tuned"),
        ("hierarchical:algorithm=sgd", "unknown algorithm 'sgd'; valid: reinforce, ppo"),
        ("placeto:features=degrees", "unknown argument 'features'"),
        ("hsdag:features=degrees+colour", "unknown feature 'colour'"),
        ("hsdag:variant=released,faults=some", "unknown faults 'some'; valid: 0, 1"),
        ("hsdag:pooling=all", "unknown pooling 'all'; valid: kept, inside"),
        ("hsdag:dropout=1", "dropout=1.0 is out of range"),
        ("hsdag:returns=all", "unknown returns 'all'; valid: to_go, episode"),
        ("hierarchical:grouping=fixed", "unknown grouping 'fixed'; valid: learned, random"),
        ("colocrl:hidden_size=7", "hidden_size=7 cannot be halved"),
        ("giph:start=slowest", "unknown start 'slowest'; valid: fastest, random"),
        ("doppler:stages=real", r"unknown stages 'real'; valid: imitation\+simulation"),
    ],
)
def test_mistakes_are_one_line(text, said):
    with pytest.raises(UserError, match=said) as error:
        learned.make(text, 3)
    assert "\n" not in str(error.value)


SMALL = "scheduler:hidden_size=4,num_samples=4,episode_steps=2"


def _bucket_problem(seed: int, num_ops: int) -> Problem:
    """A random graph; those of 30 to 38 operations with 40 edges are in one bucket."""
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag_of_size(rng, num_ops, 40, 30)
    costs = helpers.random_costs(rng, graph, 3)._replace(
        capacity_bytes=np.full(3, np.inf, np.float32)
    )
    return helpers.as_problem(graph, costs, "makespan")


def test_buckets_share_compilation():
    """With another learning rate, too; at 0 the parameters stay as they were."""
    first, second = _bucket_problem(0, 34), _bucket_problem(1, 37)
    with helpers.count_compilations() as compiled:
        methods.solve(first, SMALL, budget=20)
    assert compiled
    with helpers.count_compilations() as compiled:
        search = learned.Search.prepare(f"{SMALL},learning_rate=0", second)
        limits, reports = SearchLimits(60.0, 20), []
        start = search.start(0, limits)
        solution = search.run(start, limits, lambda report, _: reports.append(report))
    assert compiled == []
    params = reports[-1].progress.state.params
    assert reports[-1].progress.step
    jax.tree.map(np.testing.assert_array_equal, params, start.state.params)
    assert solution.value_s == second.value_s(solution.placement)


def test_time_limit_excludes_compilation(monkeypatch):
    """Compilation takes 100 s here, and a report 1 s; the limit is 5 s."""
    now = [0.0]

    def advance(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    search = trainer.search

    def compile_slowly(*args: object, **options: object) -> Iterator[trainer.Report]:
        advance(100.0)
        yield from search(*args, **options)

    monkeypatch.setattr(trainer, "search", compile_slowly)
    reported: list[int] = []

    def observe(evaluations: int, *_: object) -> None:
        reported.append(evaluations)
        advance(1.0)

    limits = SearchLimits(5.0, 1_000_000, observe)
    solution = learned.find(SMALL, _bucket_problem(0, 34), 0, limits)
    # Before the compilation the best single device and three starts are reported. The first start
    # compiles the simulator, so that the limit counts the other two and three more reports.
    assert (solution.status, len(reported)) == (Status.TIME_LIMIT, 4 + 3)
    assert solution.compile_s == 4.0 + 100.0
    assert limits.elapsed_s() == 107.0


@pytest.mark.parametrize("method", ["colocrl", "hsdag:variant=released"])
def test_zero_shot_refuses_other_policies(method):
    with pytest.raises(UserError, match=f"zero_shot cannot place with a policy of '{method}'"):
        pretrained.check_zero_shot(method)


@pytest.mark.slow
def test_zero_shot_finds_optimum():
    graph = helpers.fork_join(2, 3)
    problem = Problem(graph, helpers.unit_costs(graph), "makespan", ("A", "B"))
    search = learned.Search.prepare("scheduler:hidden_size=8", problem)
    params = search.start(0, SearchLimits(60.0, 3)).state.params
    solution = pretrained.place(search, params, jax.random.key(2))
    assert solution.value_s == pytest.approx(problem.value_s(solution.placement))
    rows = helpers.all_placements(graph.num_ops, 2)
    assert solution.value_s == pytest.approx(float(problem.evaluate(rows).min()))
