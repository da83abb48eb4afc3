"""The one verdict: placements, single devices and references are judged alike."""

import math

from placement.reporting import verdict
from tests.reporting.rows import make_row

SINGLE = make_row("single:A", 0.030, 0.030, 1.0)
UNCLEAR = "No placement is clearly faster than running without one:"
NOTHING_FOUND = "found no placement on several devices that is clearly faster."


def decide(*rows, objective="makespan", preferred=""):
    return verdict.sentence(verdict.decide(rows, preferred), objective)


def test_lack_of_memory_is_named():
    out_of_memory = "failed: out of memory: A needs 3 MB of 2 MB"
    single = make_row("single:A", None, status=out_of_memory)
    placed = make_row("search", 0.019, 0.020)
    assert decide(single, placed) == (
        "No single device has enough memory. Use the placement of `search`: 20.00 ms."
    )
    cpu = make_row("reference:CPU", None, 0.040, reference=True)
    assert decide(single, placed, cpu) == (
        "No single device has enough memory. Use the placement of `search`: 20.00 ms, 50% less "
        "than without placing (plain OpenVINO on `CPU`: 40.00 ms)."
    )
    fits = make_row("single:B", 0.030, 0.030, 1.0)
    assert decide(single, fits, placed).startswith("Use the placement of `search`: 20.00 ms,")
    assert decide(single) == "No placement has a usable latency; the column `status` says why."


def test_winner_is_clearly_faster():
    # Median ms of a placement and of the whole CPU, compared with 30 ms on one device.
    for search, reference, expected in (
        (20.0, 25.0, "20.00 ms, 20% less than without placing (plain OpenVINO on `CPU`: 25.00 ms)"),
        (20.0, 40.0, "20.00 ms, 33% less than without placing (`A` alone: 30.00 ms)."),
        (20.0, 20.4, f"20.40 ms. {UNCLEAR} the placement of `search` takes 20.00 ms, 2.0% less."),
        (29.9, 40.0, f"Use `A` alone: 30.00 ms. {UNCLEAR} the placement of `search` takes 29.90"),
        (60.0, 29.9, "`A` alone: 30.00 ms. The placement of `search` takes 60.00 ms, 2.0 times as"),
        (60.0, 20.0, "Use plain OpenVINO on `CPU`: 20.00 ms. `A` alone takes 30.00 ms, 50% more."),
    ):
        rows = [
            SINGLE,
            make_row("search", 0.01, search / 1e3, search / 30),
            make_row("reference:CPU", None, reference / 1e3, reference / 30, reference=True),
        ]
        assert expected in decide(*rows)
        assert verdict.decide(rows).placement.method == ("search" if search < 29 else "single:A")


def test_preferred_device_is_kept():
    rows = [make_row("single:A", 0.03, 0.03, 1.0), make_row("single:B", 0.03, 0.0302, 1.01)]
    assert decide(*rows, preferred="single:B").startswith("Use `B` alone")
    rows[1] = make_row("single:B", 0.03, 0.04, 1.3)
    assert decide(*rows, preferred="single:B").startswith("Use `A` alone")


def test_predictions_count_without_measurements():
    rows = [make_row("single:A", 0.03, ratio=1.0), make_row("heft", 0.03, ratio=1.0)]
    assert decide(*rows).startswith("In simulation, use `A` alone: 30.00 ms. No placement is")
    rows += [make_row("lns", 0.02, ratio=0.667)]
    assert decide(*rows) == (
        "In simulation, use the placement of `lns`: 20.00 ms, 33% less than without placing (`A` "
        "alone: 30.00 ms)."
    )
    on_one_device = make_row("hetero", 0.0299, ratio=0.99, num_devices=1)
    assert decide(rows[0], on_one_device) == (
        "In simulation, use `A` alone: 30.00 ms. No faster placement is known."
    )


def test_gain_decides_next_step():
    predicted = [make_row("single:A", 0.03, ratio=1.0), make_row("lns", 0.0285, ratio=0.95)]
    fast, slow = make_row("lns", 0.02, 0.02, 0.667), make_row("lns", 0.06, 0.06, 2.0)
    for rows, headline, step in (
        ([SINGLE, fast], "placing saves 33%", "`placement deploy runs/a` writes"),
        ([SINGLE, slow], "placing saves nothing", "run the model with OpenVINO as it is"),
        ([fast], "only a placement runs", "`placement deploy runs/a` writes"),
        (predicted, "placing saves 5.0% (predicted)", "these are predictions"),
        ([make_row("lns", None)], "nothing runs", "see why each method failed"),
    ):
        decided = verdict.decide(rows)
        assert verdict.headline(decided) == headline
        assert verdict.next_step(decided, "runs/a").startswith(step)


def test_baselines_do_not_show_searches():
    def row(method, milliseconds, num_devices, **extra):
        seconds = milliseconds / 1e3
        return make_row(
            method, seconds, seconds, milliseconds / 30, num_devices=num_devices, **extra
        )

    use = "Use `A` alone: 30.00 ms."
    rows = [row("single:A", 30.0, 1), row("hetero", 30.0, 1), row("random", 60.0, 2)]
    assert decide(*rows) == f"{use} No faster placement is known."
    interrupted = row("search", 30.0, 1, status="interrupted")
    assert decide(*rows, interrupted) == f"{use} `search` {NOTHING_FOUND}"
    failed = row("search", 30.0, 1, status="failed: fault: why")
    assert decide(*rows, failed) == f"{use} No faster placement is known."
    both = (row("search", 30.0, 1), row("lns", 30.0, 1), row("hsdag", 70.0, 2))
    assert decide(*rows, *both) == f"{use} `search` and `lns` {NOTHING_FOUND}"
    assert decide(*rows, row("search", 80.0, 2), row("hsdag", 70.0, 2)) == (
        f"{use} The placement of `hsdag` takes 70.00 ms, 2.3 times as long."  # not `random`
    )


def test_one_device_for_every_seed():
    rows = [make_row("single:A", 0.03, ratio=1.0, seed=seed, num_devices=1) for seed in (0, 1)]
    rows += [make_row("lns", 0.03, ratio=1.0, seed=0, num_devices=1)]
    rows += [make_row("lns", 0.05, ratio=5 / 3, seed=1, num_devices=2)]
    assert decide(*rows) == (
        "In simulation, use `A` alone: 30.00 ms (mean of 2 seeds). "
        "The placement of `lns` takes 40.00 ms (mean of 2 seeds), 33% more."
    )


def test_failed_rows_cannot_win():
    failed = make_row("heft", 0.001, status="failed: compile: why")
    unmeasured = make_row("lns", 0.001)
    assert decide(SINGLE, failed, unmeasured).startswith("Use `A` alone")
    assert decide(failed) == "No placement has a usable latency; the column `status` says why."
    broken = make_row("single:A", 0.03, status="failed: infer: why")
    alone = make_row("lns", 0.02, 0.02)
    assert decide(broken, alone) == "Use the placement of `lns`: 20.00 ms. No single device runs."


def test_wrong_predictions_are_flagged():
    right = make_row("lns", 0.02, 0.024, 0.8)  # within a quarter, as the simulator mostly is
    assert verdict.misprediction([SINGLE, right]) is None
    wrong = make_row("search", 0.0213, 0.0576, 2.7, status="optimal")
    assert verdict.misprediction([SINGLE, right, wrong]) == (
        "The prediction for `search` is off by more than 25%: 21.30 ms predicted, 57.60 ms "
        "measured."
    )
    worse = make_row("random", 0.01, 0.1, 3.0)
    assert verdict.misprediction([SINGLE, right, wrong, worse]).startswith(
        "2 of 4 predictions are off by more than 25%, most for `random`: 10.00 ms predicted"
    )
    reference = make_row("reference:CPU", math.nan, 0.1, 3.0, reference=True)
    assert verdict.misprediction([SINGLE, reference]) is None


def compared(*ratios, methods=("single:A", "scheduler", "search")):
    return [
        make_row(method, ratio, ratio=ratio, graph=graph, seed=0)
        for graph, of_graph in zip("ab", ratios, strict=True)
        for method, ratio in zip(methods, of_graph, strict=True)
        if ratio is not None
    ]


def test_methods_are_ranked_over_graphs():
    rows = compared((1.0, 0.908, 0.8), (1.0, 0.9, 0.9))
    assert [*verdict.rank(rows)] == (["search", "scheduler", "single:A"])
    assert verdict.sentences(rows) == [
        "`search` is the fastest on average: 0.849 of the best single device (geometric mean, 2 "
        "graphs); next is `scheduler` with 0.904."
    ]
    rows = compared((1.0, 0.9, 0.8), (1.0, 0.9, None))  # `search` has no row on the second graph
    assert next(iter(verdict.rank(rows))) == "scheduler"
    reference = [
        make_row("reference:CPU", None, ratio=0.5, graph=graph, reference=True) for graph in "ab"
    ]
    assert next(iter(verdict.rank(rows + reference))) == "reference:CPU"


def test_rank_ignores_number_of_seeds():
    rows = [
        make_row(method, ratio, ratio=ratio, graph=graph, seed=seed)
        for method, ratio, seeds in (("single:A", 1.0, 3), ("random", 0.9, 3), ("heft", 0.8, 1))
        for graph in "ab"
        for seed in range(seeds)
    ]
    assert [*verdict.rank(rows)] == ["heft", "random", "single:A"]
