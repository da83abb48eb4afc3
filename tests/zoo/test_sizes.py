"""Networks by their sizes: operations and FLOPs as published, and what is refused."""

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


@pytest.mark.parametrize("depth", RESNETS)
def test_resnets_match_publications(depth):
    graph = _graph(f"resnet:depth={depth}")
    ops, blocks, projections, multiply_adds = RESNETS[depth]
    assert graph.num_ops == 20 + ops * blocks + 6 * projections
    assert graph.flops.sum() == pytest.approx(2e9 * multiply_adds, rel=0.01)
    # The stem, two or three in a block, and the classifier.
    weighted = graph.op_types.count("Convolution") + graph.op_types.count("MatMul")
    assert weighted == depth + projections


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
