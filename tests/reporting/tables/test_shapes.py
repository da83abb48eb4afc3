"""The table and sentences about several input shapes."""

from placement.reporting.tables import results, shapes
from tests.reporting.rows import make_row

_SHAPES = [
    {"input_shapes": "x:1,3", "weight": 9},
    {"input_shapes": "x:8,3", "weight": 1},
]


def _summary(**changes):
    rows = [
        make_row("single:A", 0.02, 0.02, 1.0, shapes_s=[0.001, 0.011]),
        make_row("heft", 0.01, 0.01, 0.5, shapes_s=[0.0005, 0.0055]),
        make_row("reference:CPU", None, 0.03, 1.5, reference=True, shapes_s=[0.002, 0.012]),
    ]
    summary = {"graph": {"name": "g", "num_ops": 3, "num_edges": 2}, "devices": ["A", "B"]}
    return summary | {"objective": "serial", "seed": 0, "rows": rows, "shapes": _SHAPES} | changes


def test_each_shape_has_a_row_with_the_placement_and_the_reference():
    lines = shapes.markdown(_summary()).splitlines()
    assert lines[0] == "| input shapes | weight | heft | CPU |"
    assert lines[2:4] == [
        "| `x:1,3` | 9 | 500 us | 2 ms |",
        "| `x:8,3` | 1 | 5.5 ms | 12 ms |",
    ]
    assert shapes.TITLE in results.report_markdown(_summary())


def test_the_terminal_has_a_sentence_for_each_shape():
    assert shapes.sentences(_summary()) == [
        "9 x x:1,3: heft 500 us, CPU 2 ms",
        "1 x x:8,3: heft 5.5 ms, CPU 12 ms",
    ]


def test_one_shape_and_predictions_have_no_sentences():
    summary = _summary()
    assert shapes.sentences({**summary, "shapes": []}) == []
    rows = [make_row("single:A", 0.02), make_row("heft", 0.01)]
    assert shapes.sentences({**summary, "rows": rows}) == []
    assert shapes.TITLE not in results.report_markdown({**summary, "shapes": []})
