"""GiPH's claim: its policy places unseen graphs on unseen device networks, without learning there.

GiPH (Hu et al. 2023, `placement.policies.giph`) is trained on random task graphs and device
networks like the paper's (`placement.zoo.task_graphs`). Every update learns from four episodes of
problems that are drawn anew:

    paper      four problems with an episode of each; an episode's baseline is the mean of its own
               rewards, as in the released code
    compared   one problem, whose four episodes are the baseline of each other

Then the policy relocates operations of other problems for one episode from a random placement, as
in the paper: 2 N evaluations of N operations. The sets of problems are graphs and networks seen in
training, unseen graphs, unseen networks, both unseen, and both unseen with twice as many devices.

A score is the best latency of the episode over that of HEFT, the geometric mean over the problems
of a set and the episodes of each. `untrained` has the initial parameters, so that its relocations
are almost uniformly random. `random` evaluates as many random placements.
"""

import functools
import sys
from typing import NamedTuple

import jax
import jraph
import numpy as np
from rich.console import Console

from placement import methods
from placement.instance import Instance
from placement.learning import batched
from placement.learning.base import State
from placement.methods import learned
from placement.policies import base, giph
from placement.reporting import units
from placement.reporting.tables import grids
from placement.types import Array, Params, Policy, Sample
from placement.zoo import task_graphs

# Each training: a method and the problems of an update.
TRAININGS = {
    "paper": ("giph:variant=paper", 4),
    "compared": ("giph:groups=0,start=random,num_samples=4", 1),
}
SETS = "seen", "unseen graphs", "unseen networks", "both unseen", "twice the devices"
VARIANTS = "random", "untrained", *TRAININGS
HEADER = "problems", *VARIANTS
_NUM_DEVICES = 6
_NUM_GRAPHS, _NUM_NETWORKS = 20, 10  # of training; the unseen ones have larger numbers
_NUM_TESTS = 15  # problems of each set
_EPISODES = 4  # of each test
_UPDATES = 60
_SEEDS = range(5)
_RATIO = units.Unit("", 1.0, 3)
_NUM_NODES, _NUM_EDGES = 40, 80  # padded


class Score(NamedTuple):
    """The score of one training run on one set of problems."""

    seed: int
    problems: str
    ratios: tuple[float, ...]  # of `VARIANTS`


def run() -> None:
    """Prints a row for each set of problems."""
    table = grids.new_table("best latency of an episode over HEFT's", (HEADER[0],), HEADER[1:])
    for row in make_rows(measure()):
        table.add_row(*row)
    Console(width=120).print(table)


def measure(num_updates: int = _UPDATES, num_tests: int = _NUM_TESTS) -> list[Score]:
    """Returns the scores of every training run, and prints them to stderr as they are known."""
    scores = []
    for seed in _SEEDS:
        runs = [train(training, seed, num_updates) for training in TRAININGS]
        params = runs[0][0], *(trained for _, trained in runs)
        for problems in SETS:
            rng = np.random.default_rng([seed, SETS.index(problems)])
            ratios = [
                _compute_ratios(draw_problem(problems, rng), params, rng) for _ in range(num_tests)
            ]
            means = np.exp(np.log(ratios).mean(axis=0))
            scores.append(Score(seed, problems, tuple(means.tolist())))
            print(*scores[-1], file=sys.stderr, flush=True)
    return scores


def make_rows(scores: list[Score]) -> list[list[str]]:
    """Returns a row of `HEADER` for each set of problems: means over the training runs."""
    rows = []
    for problems in dict.fromkeys(score.problems for score in scores):
        ratios = np.array([score.ratios for score in scores if score.problems == problems])
        columns = [grids.estimate(column) for column in ratios.T]
        rows.append([problems, *(column.write(_RATIO) for column in columns)])
    return rows


def draw_problem(problems: str, rng: np.random.Generator) -> Instance:
    """Draws a problem of one of `SETS`, of at most 39 operations and 79 edges."""
    num_devices = _NUM_DEVICES * (2 if problems == "twice the devices" else 1)
    is_seen = [problems in ("seen", f"unseen {unseen}") for unseen in ("networks", "graphs")]
    graph, network = (
        rng.integers(0, number) if seen else rng.integers(1000, 2000)
        for seen, number in zip(is_seen, (_NUM_GRAPHS, _NUM_NETWORKS), strict=True)
    )
    workload = task_graphs.build(
        f"synthetic:family={task_graphs.FAMILY},ops=10,shape={10 * (1 + graph % 3)},"
        f"devices={num_devices},seed={graph},network={network}"
    )
    if workload.graph.num_ops >= _NUM_NODES or workload.graph.num_edges >= _NUM_EDGES:
        return draw_problem(problems, rng)
    return Instance(workload.graph, workload.costs, "makespan", workload.devices)


def train(training: str, seed: int, num_updates: int) -> tuple[Params, Params]:
    """Returns the initial parameters and those after one of `TRAININGS`."""
    rng = np.random.default_rng(seed)
    method, num_problems = TRAININGS[training]
    learner = learned.make(method, _NUM_DEVICES, False, batched.batch_policy).learner
    state: State | None = None
    initial: Params = None
    for _ in range(num_updates):
        problems = [draw_problem("seen", rng) for _ in range(num_problems)]
        batch = batched.stack([batched.prepare(_read(problem), problem) for problem in problems])
        if state is None:
            state = learner.init(jax.random.PRNGKey(seed), batch.graphs)
            initial = state.params
        state, _ = batched.train_step(learner, state, batch)
    assert state is not None
    return initial, state.params


def _read(problem: Instance) -> jraph.GraphsTuple:
    return base.read_costs(problem, giph.giph_view, _NUM_NODES, _NUM_EDGES).graph


def _compute_ratios(
    problem: Instance, params: tuple[Params, ...], rng: np.random.Generator
) -> tuple[float, ...]:
    """Returns the ratios of `VARIANTS` for one problem, geometric means over its episodes."""
    heft_s = methods.solve(problem, "heft").value_s
    graph = _read(problem)
    policy = learned.make("giph:variant=paper", len(problem.devices), False).policy
    num_ops = problem.graph.num_ops
    num_steps = 1 + 2 * num_ops
    noise = np.where(problem.allowed, rng.random((_EPISODES, num_steps, *problem.allowed.shape)), 0)
    episodes = [noise.argmax(axis=-1).astype(np.int32)]
    key = jax.random.PRNGKey(int(rng.integers(2**31)))
    for variant in params:
        placements = np.asarray(_sample(policy, variant, key, graph).placement)
        episodes.append(placements[:, :num_steps, :num_ops])
    latencies_s = [
        np.asarray(problem.evaluate(placements.reshape(-1, num_ops))).reshape(_EPISODES, -1)
        for placements in episodes
    ]
    return tuple(float(np.exp(np.log(s.min(axis=1) / heft_s).mean())) for s in latencies_s)


@functools.partial(jax.jit, static_argnums=0)
def _sample(policy: Policy, params: Params, key: Array, graph: jraph.GraphsTuple) -> Sample:
    return policy.sample(params, key, graph, _EPISODES)
