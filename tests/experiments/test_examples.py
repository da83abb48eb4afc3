"""The method in one file: it improves on single devices, and uses no policy of the package."""

import ast
import json
from pathlib import Path

import jax
import matplotlib as mpl
import numpy as np
import pytest

from experiments.examples import ppo
from placement import environments, suite
from placement.costs import roofline
from placement.problem import Problem
from placement.zoo import synthetic


def test_example_stands_alone():
    source = Path(ppo.__file__).read_text()
    assert len(source.splitlines()) <= 400
    imported = {
        node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    }
    packages = {module.split(".")[1] for module in imported if module.startswith("placement.")}
    assert packages <= {"environments", "problem", "types"}
    assert ppo.PROBLEM in {entry.name for entry in suite.list_entries()}


def test_updates_beat_single_devices():
    devices = roofline.parse_devices("roofline:cpu,gpu,gpu")
    graph = synthetic.build("synthetic:family=layered,ops=30")
    problem = Problem(graph, roofline.cost_model(graph, devices), "makespan", devices)
    problem_arrays = environments.make_arrays(problem)
    key, init_key = jax.random.split(jax.random.key(0))
    state = ppo.init(init_key, problem_arrays)
    for update_key in jax.random.split(key, 3):
        state, _ = ppo.update(state, update_key, problem_arrays)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert state.best_value < 0.95
    # The environment's value is that of the simulator.
    placement = np.asarray(state.best_placement)[: problem.num_decisions]
    singles = np.asarray(problem.evaluate(problem.single_devices))
    assert problem.value_s(placement) / singles.min() == pytest.approx(
        float(state.best_value), rel=1e-4
    )


@pytest.mark.nightly
def test_notebook_runs(capsys):
    mpl.use("agg")
    notebook = json.loads(Path(ppo.__file__).with_name("environments.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    limit = "TIME_LIMIT_S = 60.0"
    assert sum(limit in cell for cell in cells) == 1
    variables: dict[str, object] = {}
    for cell in cells:
        exec(compile(cell.replace(limit, "TIME_LIMIT_S = 0.01"), "notebook", "exec"), variables)
    out = capsys.readouterr().out
    assert "best of 256 random placements" in out
    assert "best placement:" in out
