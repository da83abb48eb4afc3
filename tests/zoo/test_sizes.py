"""Networks by their sizes: operations, FLOPs and shapes from formulas, and what is refused."""

import pytest

from placement import zoo
from placement.errors import UserError
from placement.runtime.models import extract
from placement.types import OpGraph

# Depth -> operations of a block, blocks, blocks with a projection, and the 10^9 multiply-adds that
# torchvision's table of models states.
RESNETS = {
    18: (15, 8, 3, 1.81),
    152: (22, 50, 4, 11.51),
}


def _graph(text: str) -> OpGraph:
    return extract.op_graph(zoo.build(text, weights=False), name=text).graph


def _flops(graph: OpGraph, kind: str) -> float:
    return sum(
        flops for flops, each in zip(graph.flops, graph.op_types, strict=True) if each == kind
    )


def _shape(graph: OpGraph, name: str) -> tuple[int, ...]:
    return graph.output_shapes[graph.op_names.index(name)]


@pytest.mark.parametrize("depth", RESNETS)
def test_resnets_match_publications(depth):
    graph = _graph(f"resnet:depth={depth}")
    ops, blocks, projections, multiply_adds = RESNETS[depth]
    assert graph.num_ops == 20 + ops * blocks + 6 * projections
    assert graph.flops.sum() == pytest.approx(2e9 * multiply_adds, rel=0.01)
    # The stem, two or three in a block, and the classifier.
    weighted = graph.op_types.count("Convolution") + graph.op_types.count("MatMul")
    assert weighted == depth + projections


def test_inception_module_by_module():
    for early, middle, late in ((1, 1, 1), (2, 1, 3), (1, 30, 1)):
        text = f"inception_v3:size=75,width=10,early={early},middle={middle},late={late}"
        graph = _graph(text)
        assert graph.num_ops == 157 + 51 * early + 72 * middle + 65 * late
    # 30 modules and the one before them, which halves the image.
    names = {name.split("/")[0] for name in graph.op_names if name.startswith("Mixed_6")}
    assert len(names) == 31
    assert {"Mixed_6a", "Mixed_6z", "Mixed_6a1", "Mixed_6e1"} < names


@pytest.mark.parametrize(
    ("num_layers", "hidden", "heads", "length", "batch"),
    [(1, 12, 3, 5, 1), (2, 32, 4, 16, 3)],
)
def test_bert_layer_by_layer(num_layers, hidden, heads, length, batch):
    sizes = f"layers={num_layers},hidden={hidden},heads={heads},length={length},batch={batch}"
    graph = _graph(f"bert:{sizes},vocabulary=40")
    assert graph.num_ops == 49 + 80 * num_layers
    assert graph.num_edges == 48 + 85 * num_layers
    # Query, key, value and output, scores and context, two feed-forward layers four times as wide.
    tokens = batch * length
    layer = 4 * tokens * hidden**2 + 2 * tokens * length * hidden + 8 * tokens * hidden**2
    multiply_adds = num_layers * layer + batch * hidden**2  # the pooler's
    assert _flops(graph, "MatMul") == 2 * multiply_adds
    scores = _shape(graph, "encoder/0/attention/scores")
    assert scores == (batch, heads, length, length)
    assert _shape(graph, "embeddings/word/weight") == (40, hidden)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bert:hidden=100", "hidden=100 among heads=12; pass .* multiple of heads, such as 108"),
        ("inception_v3:size=74", "size=74 is out of range; set at least 75"),
        ("inception_v3:width=3", "width=3 is out of range; set at least 4"),
        ("resnet:depth=20", "unknown depth '20'.* 18, 34, 50, 101, 152"),
        ("rnnlm:hidden=1000000000000", "does not fit in memory"),
    ],
)
def test_impossible_sizes_are_refused(text, said):
    with pytest.raises(UserError, match=said) as error:
        zoo.build(text)
    assert str(error.value).startswith(f"graph {text!r}")
    assert "\n" not in str(error.value)
