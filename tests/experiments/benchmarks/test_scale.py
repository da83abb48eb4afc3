"""The table of the benchmark of sizes, for invented times."""

import pytest

from experiments.benchmarks import __main__ as program
from experiments.benchmarks import scale


def test_exponent():
    assert scale.format_exponent((10, 100, 1000), [7.0, 2.0, 200.0]) == "2.00"
    assert scale.format_exponent((10, 20), [1.0, 2.0]) == "1.00"
    assert scale.format_exponent((10,), [1.0]) == ""


def test_wrong_sizes_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        program.main(["benchmarks", "scale", "10", "many"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: scale takes numbers of operations; given '10 many'")
    assert err.count("\n") == 1
