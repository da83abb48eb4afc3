import math

from placement.reporting import units


def test_unit_follows_magnitude():
    texts = {
        **{12.3456: "12.35 s", 1.0: "1.000 s", 0.99999: "1000.0 ms", 0.0213: "21.30 ms"},
        **{0.0012345: "1.234 ms", 45e-6: "45.00 us", 3e-8: "0.030 us"},
    }
    for seconds, text in texts.items():
        unit = units.latency_unit([seconds])
        assert f"{unit.write(seconds)} {unit.name}" == text


def test_latencies_share_one_unit():
    unit = units.latency_unit([0.01, 0.012, 2.0, math.inf])
    assert unit.name == "ms"
    assert [unit.write(s) for s in (2.0, math.inf, math.nan, None)] == ["2000.00", "-", "-", "-"]
    assert units.latency_unit([None]).name == "ms"


def test_sizes_have_three_digits():
    durations = {0.0: "0 s", 2.0: "2 s", 0.012345: "12.3 ms", 9.99e-4: "999 us", 5e-8: "0.05 us"}
    assert {seconds: units.duration(seconds) for seconds in durations} == durations
    sizes = {0: "0 bytes", 64: "64 bytes", 1.25e7: "12.5 MB", 2e12: "2e+03 GB"}
    assert {number: units.size(number) for number in sizes} == sizes
