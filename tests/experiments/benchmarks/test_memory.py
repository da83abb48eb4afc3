"""The benchmark of the plug-in's memory, on one small network."""

import pytest

from experiments.benchmarks import memory


def test_halves_share_the_constants_and_the_overhead(monkeypatch, capsys):
    monkeypatch.setattr(memory, "GRAPHS", ("bert:layers=1,hidden=96",))
    results = memory.measure()
    first, second = results
    assert first.half_constant_bytes + second.half_constant_bytes == first.constant_bytes
    total_bytes = first.predicted_bytes + second.predicted_bytes
    assert total_bytes == pytest.approx(first.overheads_bytes[0], rel=1e-4)
    assert min(result.measured_bytes for result in results) > 0
    monkeypatch.setattr(memory, "measure", lambda: results)
    memory.run()
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if "bert:" in line]
    assert printed == memory.make_rows(results)
    megabytes = [float(number) for number in printed[0][1:]]
    assert megabytes[0] == pytest.approx(first.constant_bytes / 1e6, abs=0.05)
    assert megabytes[4:] == pytest.approx([n / 1e6 for n in first[4:]], abs=0.05)
