"""Training graphs against graphs worked out by hand, and against JAX's gradients."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import coarsen, dag, opgraph, training
from placement.pipeline import loading
from placement.types import OpGraph

_BATCH, _IN, _OUT = 2, 3, 5
_ZOO = ("inception_v3", "nmt:layers=3,steps=4")


def _network(ops, edges, shapes, *, flops=None, weights=()) -> OpGraph:
    """Returns a graph of (name, type) and edges (sender, receiver), tensors of float32."""
    size = [4 * math.prod(shapes[sender]) for sender, _ in edges]
    return opgraph.make_graph(
        name="net",
        op_names=[name for name, _ in ops],
        op_types=[kind for _, kind in ops],
        senders=[sender for sender, _ in edges],
        receivers=[receiver for _, receiver in edges],
        edge_bytes=size,
        output_shapes=shapes,
        flops=[0] * len(ops) if flops is None else flops,
        weight_bytes=[4 * math.prod(shapes[op]) if op in weights else 0 for op in range(len(ops))],
    )


def _dense() -> OpGraph:
    """Returns the graph of relu(x @ w + b), with weights of float32 that need no Convert."""
    ops = [("x", "Parameter"), ("w", "Constant"), ("b", "Constant"), ("product", "MatMul")]
    ops += [("sum", "Add"), ("relu", "Relu"), ("y", "Result")]
    edges = [(0, 3), (1, 3), (3, 4), (2, 4), (4, 5), (5, 6)]
    out = (_BATCH, _OUT)
    shapes = [(_BATCH, _IN), (_IN, _OUT), (1, _OUT), out, out, out, ()]
    product = 2.0 * _BATCH * _IN * _OUT
    return _network(ops, edges, shapes, flops=[0, 0, 0, product, 10, 10, 0], weights=(1, 2))


def _reads(graph: OpGraph, name: str) -> list[str]:
    op = graph.op_names.index(name)
    return [graph.op_names[s] for s in graph.senders[graph.receivers == op]]


def _flops(graph: OpGraph, name: str) -> float:
    return float(graph.flops[graph.op_names.index(name)])


def _zoo(name: str) -> OpGraph:
    return loading.extract_zoo_graph(name, constants=True)


def test_dense_layer_by_hand():
    graph = training.make_training_graph(_dense()).graph
    added = graph.op_names[7:]
    assert added == (
        "gradients/y/loss",
        "gradients/relu/0",
        "gradients/sum/1/sum",
        "gradients/product/1",
        "update/b",
        "update/w",
    )
    assert graph.op_types[7:] == (
        *("LossGrad", "ReluGrad", "ReduceSum", "MatMul"),
        *("ApplyAdam", "ApplyAdam"),
    )
    assert _reads(graph, "gradients/relu/0") == ["gradients/y/loss", "relu"]
    assert _reads(graph, "gradients/sum/1/sum") == ["gradients/relu/0"]
    assert _reads(graph, "gradients/product/1") == ["gradients/relu/0", "x"]
    assert _reads(graph, "update/w") == ["gradients/product/1", "w"]
    assert [_flops(graph, name) for name in added] == [
        *(2 * _BATCH * _OUT, _BATCH * _OUT, _BATCH * _OUT, 2 * _BATCH * _IN * _OUT),
        *(12 * _OUT, 12 * _IN * _OUT),
    ]
    sizes = dict(zip(graph.op_names, graph.weight_bytes.tolist(), strict=True))
    assert sizes["w"] == 4 * _IN * _OUT
    assert sizes["update/w"] == 2 * sizes["w"]  # Adam's states
    assert graph.op_types[1] == graph.op_types[2] == "Variable"


def test_shared_weights_sum_gradients():
    graph = training.make_training_graph(_zoo("rnnlm:steps=3")).graph
    added = _reads(graph, "gradients/lstm0/weight/add_n")
    assert sorted(added) == [f"gradients/lstm0/step{t}/matmul/1" for t in range(3)]
    size = graph.weight_bytes[graph.op_names.index("lstm0/weight")] / 4
    assert _flops(graph, "gradients/lstm0/weight/add_n") == 2 * size
    assert graph.op_names.count("update/lstm0/weight") == 1


def test_gradients_of_looked_up_rows():
    graph = training.make_training_graph(
        _zoo("rnnlm:steps=3,batch=4,hidden=16,vocabulary=50")
    ).graph
    table = graph.op_names.index("gradients/embedding/weight/add_n")
    assert graph.op_types[table] == "Concat"
    assert graph.flops[table] == 0
    (edge,) = np.flatnonzero(graph.senders == table)
    assert graph.edge_bytes[edge] == 3 * 4 * 16 * 4  # steps, batch, hidden, float32
    assert _flops(graph, "update/embedding/weight") == 12 * 3 * 4 * 16


@pytest.mark.parametrize("name", _ZOO)
def test_flops_and_updates(name):
    network = _zoo(name)
    trained = training.make_training_graph(network)
    graph = trained.graph
    assert 2.9 < graph.flops.sum() / network.flops.sum() < 3.1
    variables = {
        n for n, kind in zip(graph.op_names, graph.op_types, strict=True) if kind == "Variable"
    }
    updates = {n.removeprefix("update/") for n in graph.op_names if n.startswith("update/")}
    assert variables == updates
    assert len(variables) >= 5
    assert all(
        graph.op_names[op] == network.op_names[o]
        for op, o in enumerate(trained.owner)
        if not graph.backward[op]
    )
    # Every gradient and every sum is read; what ends the graph are updates and outputs.
    unread = np.setdiff1d(np.arange(graph.num_ops), graph.senders)
    assert {graph.op_types[op] for op in unread} <= {"ApplyAdam", "Result"}


def _product_flops(jaxpr) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ((left, _), _) = equation.params["dimension_numbers"]
            inner = math.prod(equation.invars[0].aval.shape[d] for d in left)
            total += 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
        inside = (v for v in equation.params.values() if hasattr(v, "jaxpr"))
        total += sum(_product_flops(each.jaxpr) for each in inside)
    return total


def test_flops_equal_jax():
    steps, batch, hidden, words = 3, 4, 16, 50

    def loss(weights, ids):
        x = weights["table"][ids]
        for layer in ("layer0", "layer1"):
            h = c = weights["zeros"]
            out = []
            for t in range(steps):
                i, f, g, o = jnp.split(
                    jnp.concatenate([x[t], h], 1) @ weights[layer] + weights["bias"], 4, axis=1
                )
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                out.append(h)
            x = out
        return sum((jax.nn.softmax(h @ weights["softmax"]) ** 2).sum() for h in x)

    weights = {
        **{f"layer{i}": jnp.ones((2 * hidden, 4 * hidden)) for i in range(2)},
        **{"table": jnp.ones((words, hidden)), "softmax": jnp.ones((hidden, words))},
        **{"bias": jnp.ones(4 * hidden), "zeros": jnp.ones((batch, hidden))},
    }
    ids = jnp.zeros((steps, batch), jnp.int32)
    theirs = _product_flops(jax.make_jaxpr(jax.value_and_grad(loss))(weights, ids).jaxpr)
    text = f"rnnlm:steps={steps},batch={batch},hidden={hidden},vocabulary={words}"
    graph = training.make_training_graph(_zoo(text)).graph
    ours = sum(f for f, kind in zip(graph.flops, graph.op_types, strict=True) if kind == "MatMul")
    assert ours == theirs


@pytest.mark.parametrize("colocate", [True, False])
def test_coarsening_keeps_phases(colocate):
    network = _zoo("nmt:layers=2,steps=3")
    trained = training.make_training_graph(network, optimiser="sgd", colocate=colocate)
    number = dict(zip(network.op_names, network.colocation.tolist(), strict=True))
    owners = np.array([number[network.op_names[o]] for o in trained.owner])
    is_fixed = (trained.phase == training.FORWARD) | (trained.phase == training.UPDATE)
    assert (trained.graph.colocation == owners)[is_fixed].all()
    assert (trained.graph.colocation == owners)[~is_fixed].all() == colocate
    forward = coarsen.coarsen(network)
    made = training.coarsen_training_graph(trained, forward.assignment)
    graph = made.graph
    assert graph.flops.sum() == trained.graph.flops.sum()
    phases = [
        {int(p) for p in trained.phase[made.assignment == part]} for part in range(graph.num_ops)
    ]
    assert all(len(each) == 1 for each in phases)
    assert graph.backward.tolist() == [each != {training.FORWARD} for each in phases]
    # What must share a device does, whatever the parts are given.
    placement = dag.number_by_first(graph.colocation)[made.assignment]
    decision = dag.number_by_first(trained.graph.colocation)
    assert len(set(zip(decision, placement, strict=True))) == len(set(decision))
    count = len(set(graph.colocation.tolist()))
    assert count == forward.graph.num_ops if colocate else count > forward.graph.num_ops
    assert np.all(np.diff(dag.sort_nodes(graph.num_ops, graph.senders, graph.receivers)) == 1)


def test_untrainable_graphs_are_refused():
    ops, edges = [("w", "Constant"), ("top", "TopK"), ("y", "Result")], [(0, 1), (1, 2)]
    for graph, said in (
        (_network(ops[1:], edges[:1], [(2,), ()]), "has no weight that a gradient reaches"),
        (_network(ops, edges, [(4,), (2,), ()]), "'top' is a TopK, through which no gradient is"),
        (loading.build_graph_network("resnet:depth=18").graph, "leave constants=True"),
    ):
        with pytest.raises(UserError, match=said) as caught:
            training.make_training_graph(graph)
        assert "\n" not in str(caught.value)
