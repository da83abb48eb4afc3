"""The `profile` task: the costs of a model on the devices, and their accuracy.

Writes profile.json, which the setting `costs` reads, and fidelity.json, which compares predicted
with measured latencies on placements that calibration did not use. Half of those are contiguous,
half fine-grained; the last ones are the fastest that a search finds in the simulator. If
calibration does not improve held-out predictions, the profiled costs are kept.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from placement.analysis import latency_terms, segments
from placement.costs import calibrate
from placement.errors import UserError
from placement.instance import Instance
from placement.pipeline import learned_search, loading, saved_costs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, progress
from placement.pipeline.results import figures, outputs
from placement.pipeline.settings import Settings
from placement.reporting import runs, wrapped_text
from placement.reporting.figures import scatter_plots
from placement.reporting.tables import grids
from placement.runtime.measurement import evaluate as evaluate_lib
from placement.runtime.measurement.measurer import Measurer

ROUNDS = 30  # inferences of every placement
_BATCH = 15  # placements that are measured together
_MAX_CUTS = 8


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Profiles, calibrates, and checks the calibration on as many other placements."""
    loading.check_settings(settings)
    target = target_lib.find_target(settings)
    if not target.present:
        raise UserError(
            f"profile measures, and the devices of graph={settings.graph!r}, "
            f"devices={settings.devices!r} are described; set present devices, such as "
            "devices='host'"
        )
    if target.num_devices < 2:
        raise UserError(
            f"profile checks placements on several devices, but devices={settings.devices!r} is "
            "one; set two or more, such as devices='host'"
        )
    if settings.costs:
        raise UserError(f"profile makes a new profile: leave out costs={settings.costs!r}")
    if settings.objective not in _PREDICTORS:
        raise UserError(
            f"profile calibrates {' and '.join(_PREDICTORS)}, not objective={settings.objective!r}"
        )
    workdirs.claim(workdir, display, [settings.graph])
    runs.write_json(workdir / "config.json", settings.to_dict())
    environment = outputs.environment(target.hosts)
    runs.write_json(workdir / "environment.json", environment)
    with target_lib.open_accurate(target, settings, display) as (target, measurer, _):
        fidelity = _calibrate(settings, workdir, target, measurer, display)
        saved = saved_costs.read(workdir / saved_costs.FILE)
        environment |= target_lib.describe_conditions(saved, measurer, display)
    runs.write_json(workdir / "environment.json", environment)
    runs.write_json(workdir / "fidelity.json", fidelity)
    wrapped_text.print_table(_make_table(fidelity), display.console)
    if not fidelity["calibration_kept"]:
        display.say("calibration did not improve predictions for other placements: not used")
    display.console.print(f"costs: {workdir / 'profile.json'}", markup=False, soft_wrap=True)
    with faults.raise_at_end() as figure_faults:
        samples = [
            scatter_plots.Pair(p["kind"], p["predicted_s"], p["measured_s"])
            for p in fidelity["placements"]
        ]
        drawings = {"errors": lambda: scatter_plots.errors(samples, fidelity["graph"])}
        figures.write(drawings, workdir, display.console, figure_faults)
    return fidelity


def _calibrate(
    settings: Settings,
    workdir: Path,
    target: target_lib.Target,
    measurer: Measurer,
    display: progress.Display,
) -> dict[str, Any]:
    """Writes profile.json with its calibration, and returns fidelity.json's data."""
    saved = target_lib.get_profile(settings, target.net, measurer, workdir, display)
    saved.pop("calibration", None)  # of an earlier run of this task
    costs = saved_costs.cost_model(target.net.graph, saved)
    profiled = loading.make_search_problem(target.net, costs, target.names, settings.objective)
    rng = np.random.default_rng(settings.seed)
    shape = profiled.coarse.graph.num_ops, target.num_devices
    placements = np.array([p for _, p in _draw(rng, shape, settings.calibration_placements)])
    latency_s, is_measured, _ = _measure(
        settings, workdir, profiled, measurer, placements, "calibrating", display
    )
    is_valid = is_measured & np.isfinite(latency_s)
    terms = [latency_terms.prepare(profiled.coarse, p) for p in placements[is_valid]]
    calibration = calibrate.fit_if_better(
        profiled.coarse.costs, terms, latency_s[is_valid].astype(float), rounds=5
    )
    if calibration is not None:
        saved |= {"calibration": calibrate.to_json(calibration)}
        costs = calibrate.apply_calibration(costs, calibration)
    runs.write_json(workdir / saved_costs.FILE, saved)
    calibrated = loading.make_search_problem(target.net, costs, target.names, settings.objective)
    elite = learned_search.train(
        "hsdag", settings, calibrated, calibrated.simulate, workdir, display
    ).elite
    assert elite is not None
    held_out = _draw(rng, shape, settings.calibration_placements - len(elite))
    held_out += [("best found", placement) for placement in elite]
    placements = np.array([placement for _, placement in held_out])
    latency_s, is_measured, is_wrong = _measure(
        settings, workdir, calibrated, measurer, placements, "checking", display
    )
    kinds = np.array([kind for kind, _ in held_out])[is_measured]
    placements, latency_s = placements[is_measured], latency_s[is_measured]
    rows, predicted_s = [], np.empty(0)
    for predictor, predict in _PREDICTORS[settings.objective].items():
        for name, problem in (("profiled", profiled), ("calibrated", calibrated)):
            predicted_s = predict(problem.coarse, placements)
            source = {"predicted by": predictor, "costs": name}
            rows += _make_rows(kinds, latency_s, predicted_s, source)
    return {
        "graph": target.net.graph.name,
        "devices": list(target.labels),
        "backend": settings.backend,
        "inferences": ROUNDS,
        "calibrated_on": int(is_valid.sum()),
        "calibration_kept": calibration is not None,
        "rows": rows,
        "placements": [
            {
                "kind": str(kind),
                "measured_s": float(measured_s),
                "predicted_s": float(seconds),  # by the last predictor, at calibrated costs
                "wrong_output": bool(wrong),
            }
            for kind, measured_s, seconds, wrong in zip(
                kinds, latency_s, predicted_s, is_wrong[is_measured], strict=True
            )
        ],
    }


def _simulate(problem: Instance, placements: np.ndarray) -> np.ndarray:
    return np.asarray(problem.evaluate(placements))


# The predictors of each objective, the most accurate one last.
_PREDICTORS: dict[str, dict[str, Callable[[Instance, np.ndarray], np.ndarray]]] = {
    "serial": {"serial": _simulate},
    "makespan": {
        "makespan": _simulate,
        "segments": lambda problem, placements: np.array(
            [segments.latency_s(problem, placement) for placement in placements]
        ),
    },
}


def _draw(
    rng: np.random.Generator, shape: tuple[int, int], count: int
) -> list[tuple[str, np.ndarray]]:
    """Draws random coarse placements with their kind, contiguous and fine-grained in turn.

    A contiguous placement cuts the topological order into up to `_MAX_CUTS` + 1 segments. In a
    fine-grained one each operation leaves the main device with a probability that is drawn first.
    """
    num_ops, num_devices = shape
    placements = []
    for i in range(count):
        main_device = rng.integers(num_devices)
        if i % 2 == 0:
            cuts = min(int(rng.integers(1, _MAX_CUTS + 1)), num_ops - 1)
            starts = rng.choice(np.arange(1, num_ops), cuts, replace=False)
            step = rng.integers(1, num_devices, num_ops) * np.isin(np.arange(num_ops), starts)
            placements.append(("contiguous", (main_device + np.cumsum(step)) % num_devices))
        else:
            is_flipped = rng.random(num_ops) < rng.choice((0.03, 0.1, 0.25, 0.5))
            step = rng.integers(1, num_devices, num_ops) * is_flipped
            placements.append(("fine-grained", (main_device + step) % num_devices))
    return [(kind, placement.astype(np.int32)) for kind, placement in placements]


def _measure(
    settings: Settings,
    workdir: Path,
    problem: loading.SearchProblem,
    measurer: Measurer,
    placements: np.ndarray,
    phase_name: str,
    display: progress.Display,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measures placements int32 [M, N] until `time_limit_s`, at least the first `_BATCH`.

    Placements measured before an interruption are not measured again. Wrong outputs take as long as
    right ones, so such placements are timed and counted.

    Returns:
      Seconds [M], inf for a placement that did not run; bool [M]: whether a placement was measured;
      bool [M]: whether its outputs are wrong.
    """
    evaluate = evaluate_lib.MeasuredEvaluate(
        measurer,
        np.zeros(problem.coarse.graph.num_ops, np.int32),
        lambda placement: loading.make_candidate(
            problem, placement, measurer.devices, settings.backend
        ),
        evaluate_lib.MeasurementCache(workdir / "calibration.jsonl"),
        min_rounds=ROUNDS,
        time_limit_s=0.0,
        compile_s=settings.time_limit_s,
        accept_wrong=True,
    )
    latency_s = np.full(len(placements), np.inf)
    count, deadline_s = 0, time.monotonic() + settings.time_limit_s
    goal = progress.Goal(len(placements), settings.time_limit_s)
    with display.phase(phase_name, goal) as phase:
        while count < len(placements) and (count == 0 or time.monotonic() < deadline_s):
            batch = placements[count : count + _BATCH]
            latency_s[count : count + len(batch)] = evaluate(batch)
            count += len(batch)
            phase.update(count)
    is_measured = np.array([evaluate.is_known(placement) for placement in placements])
    if not is_measured.any():
        raise UserError(
            f"time_limit_s={settings.time_limit_s:g} leaves no time to measure a placement of this "
            "model; set a longer time_limit_s"
        )
    if not is_measured.all():
        display.warn(
            f"{phase_name} stopped at its limit of {settings.time_limit_s:g} s with "
            f"{is_measured.sum()} of {len(is_measured)} placements measured; to measure all set "
            "a longer time_limit_s"
        )
    return latency_s, is_measured, np.array([evaluate.outputs_wrong(p) for p in placements])


def _make_rows(
    kinds: np.ndarray, measured_s: np.ndarray, predicted_s: np.ndarray, source: dict[str, str]
) -> list[dict[str, Any]]:
    """Returns rank correlation and relative errors, for all placements and for each kind.

    The correlation is nan if either side is constant, the errors are nan without placements.
    """
    from scipy import stats  # takes a second to import

    rows: list[dict[str, Any]] = []
    for kind in ("all", *dict.fromkeys(kinds.tolist())):
        is_kind = np.full(len(kinds), True) if kind == "all" else kinds == kind
        is_valid = is_kind & np.isfinite(measured_s)
        measured, predicted = measured_s[is_valid], predicted_s[is_valid]
        error = np.abs(predicted / measured - 1)
        varies = all(len(np.unique(seconds)) > 1 for seconds in (predicted, measured))
        rows.append(
            source
            | {
                "kind": kind,
                "placements": int(is_valid.sum()),
                "failed": int((is_kind & ~is_valid).sum()),
                "spearman": float(stats.spearmanr(predicted, measured)[0]) if varies else np.nan,
                "median_error": float(np.median(error)) if error.size else np.nan,
                "p90_error": float(np.quantile(error, 0.9)) if error.size else np.nan,
            }
        )
    return rows


def _make_table(fidelity: dict[str, Any]) -> Table:
    num_wrong = sum(placement["wrong_output"] for placement in fidelity["placements"])
    title = (
        f"{fidelity['graph']}: predicted against measured, {fidelity['inferences']} inferences a "
        f"placement; {num_wrong} of {len(fidelity['placements'])} compute wrong outputs"
    )
    texts = ("predicted by", "costs", "placements")
    table = grids.new_table(title, texts, ("n", "Spearman", "median error", "90th percentile"))
    formats = {"spearman": ".3f", "median_error": ".1%", "p90_error": ".1%"}
    for row in fidelity["rows"]:
        table.add_row(
            *(row["predicted by"], row["costs"], row["kind"], str(row["placements"])),
            *("-" if np.isnan(row[key]) else f"{row[key]:{form}}" for key, form in formats.items()),
        )
    return table
