import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import dag
from placement.types import OpGraph
from placement.zoo import synthetic


def _build(family: str, sizes: str = "size=8,shards=2") -> OpGraph:
    return synthetic.build(f"synthetic:family=sharded_{family},{sizes}")


def test_products_of_blocks():
    graph = _build("chain")
    types = np.array(graph.op_types)
    assert {t: int((types == t).sum()) for t in set(types)} == {
        "Parameter": 4,
        "MatMul": 8,
        "Add": 4,
    }
    is_product = types == "MatMul"
    # 2 x 4 x 4 x 4 operations and 4 x 4 weights of 4 bytes for each; a sum adds two blocks.
    assert set(graph.flops[is_product]) == {128.0}
    assert set(graph.weight_bytes[is_product]) == {64}
    assert set(graph.flops[types == "Add"]) == {16.0}
    assert set(graph.edge_bytes) == {64}
    inputs = np.bincount(graph.receivers, minlength=graph.num_ops)
    assert set(inputs[is_product]) == {1}
    assert set(inputs[types == "Add"]) == {2}


@pytest.mark.parametrize("family", ["chain", "ffn", "transformer"])
def test_shards_keep_the_work(family):
    def matmul_flops(shards: int) -> float:
        graph = _build(family, f"size=24,shards={shards},layers=2")
        dag.topological_order(graph)
        return float(graph.flops[np.array(graph.op_types) == "MatMul"].sum())

    products = matmul_flops(1)
    if family != "transformer":  # attention is within a block of rows and a group of heads
        assert products == 2 * 2 * 24**3
        assert matmul_flops(3) == products
    else:
        assert products == 2 * 2 * 24**3 * (4 + 2 + 8)
        assert matmul_flops(3) == pytest.approx(2 * 2 * 24**3 * (4 + 2 / 3 + 8))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("size=10,shards=4", "10 rows into 4 shards; set a divisor"),
        ("shards=16", "number of operations=32768 is out of range"),
    ],
)
def test_wrong_arguments_are_refused(sizes, said):
    with pytest.raises(UserError, match=said) as error:
        _build("chain", sizes)
    assert "\n" not in str(error.value)
