"""Training steps of networks and model files, through the command line."""

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.pipeline import loading
from placement.pipeline.settings import Settings
from tests.experiments.command import check_summary, run

FLAGS = ("--config.devices=roofline:cpu,gpu,gpu", "--config.objective=makespan")
NETWORK = "rnnlm:steps=2,batch=4,hidden=256,vocabulary=500"


def configured(graph: str, **keys):
    return loading.load_network(Settings(graph=graph, **keys))


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Two layers whose weights are float32, as an .xml whose path has a colon's argument after."""
    x = ops.parameter([8, 16], ov.Type.f32, name="x")
    draw = np.random.default_rng(0).standard_normal
    y = ops.relu(ops.matmul(x, ops.constant(draw((16, 32)).astype(np.float32)), False, False))
    y = ops.matmul(y, ops.constant(draw((32, 4)).astype(np.float32)), False, False)
    path = tmp_path / "two_layers.xml"
    ov.save_model(ov.Model([ops.result(y)], [x], "m"), path, compress_to_fp16=False)
    return str(path)


def test_training_steps_are_placed(model, tmp_path):
    graphs = f"{NETWORK},training=1,{model}:training=1,optimiser=sgd"
    flags = [*FLAGS, "--task=compare", f"--config.graphs={graphs}"]
    flags += ["--config.methods=human_expert,heft,local_search", "--config.budget=64"]
    code, _, err = run(tmp_path / "run", *flags)
    assert code == 0, err
    rows = check_summary(tmp_path / "run")["rows"]
    names = {row["graph"] for row in rows}
    assert names == {f"{NETWORK},training=1", "two_layers"}
    for name in names:
        seconds = {r["method"]: r["predicted_s"] for r in rows if r["graph"] == name}
        single_s = min(value for method, value in seconds.items() if method.startswith("single:"))
        assert 0 < seconds["local_search"] <= single_s


def test_colocation_may_be_left_out():
    together = configured(f"{NETWORK},training=1").coarsening.graph
    separate = configured(f"{NETWORK},training=1,colocate=False").coarsening.graph
    assert together.num_ops == separate.num_ops
    assert len(set(together.colocation)) < len(set(separate.colocation))


def test_float32_weights_have_updates(model):
    graph = configured(f"{model}:training=1,optimiser=momentum").graph
    updates = [op for op, kind in enumerate(graph.op_types) if kind == "ApplyMomentum"]
    assert sorted(graph.weight_bytes[updates].tolist()) == [4 * 32 * 4, 4 * 16 * 32]


@pytest.mark.parametrize(
    ("graph", "keys", "message"),
    [
        ("synthetic:ops=10,training=1", {}, "has no weights to train"),
        ("rnnlm:optimiser=sgd", {}, "gives optimiser; a step of training is training=1"),
        ("rnnlm:training=2", {}, "gives training; a step of training is training=1"),
        ("rnnlm:training=yes", {}, "gives training as 'yes'; set a whole number"),
        ("rnnlm:training=1,optimiser=adagrad", {}, "unknown optimiser 'adagrad'"),
        ("resnet:depth=18,training=1", {"constants": False}, "leave constants=True"),
        ("none.xml:training=1", {}, "no model file 'none.xml'"),
    ],
)
def test_mistakes_are_one_line(graph, keys, message):
    with pytest.raises(UserError) as caught:
        configured(graph, **keys)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
