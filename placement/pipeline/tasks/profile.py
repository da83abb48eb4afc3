"""The `profile` task: what a model costs on the devices, and how far that is right.

Writes profile.json, which `--config.costs` reads, and fidelity.json: of placements that calibration
did not see, how far the `serial` objective's prediction is from what HETERO takes. Half of them are
contiguous, half fine-grained; the last are the fastest that a search finds in the simulator. Where
calibrating gains nothing on held-out placements, calibrated costs are the profiled ones.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from placement.analysis import latency_terms, segments
from placement.costs import calibrate
from placement.errors import UserError
from placement.instance import Instance
from placement.pipeline import learned_search, loading, saved_costs, workdirs
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, progress
from placement.pipeline.distributed import hosts
from placement.pipeline.results import figures, outputs
from placement.pipeline.settings import Settings
from placement.reporting import printable, runs, words
from placement.runtime.measurement import evaluate as evaluate_lib
from placement.runtime.measurement.measurer import Measurer

ROUNDS = 30  # inferences of every placement
_ROUNDS = 5  # of fitting
_AT_ONCE = 15
_MOST_CUTS = 8
_SHOWN = {"spearman": ".3f", "median_error": ".1%", "p90_error": ".1%"}
_FLIPPED = (0.03, 0.1, 0.25, 0.5)


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Profiles, calibrates, and checks the calibration on as many placements again.

    Returns:
      What fidelity.json holds.

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    loading.check(settings)
    target = target_lib.find(settings)
    if not target.present:
        raise UserError(
            f"--task=profile measures, and the devices of graph={settings.graph!r}, "
            f"devices={settings.devices!r} are described; give present devices, such as "
            "--config.devices=host"
        )
    if target.num_devices < 2:
        raise UserError(
            f"--task=profile checks placements on several devices, but "
            f"devices={settings.devices!r} is one; give two or more, such as --config.devices=host"
        )
    if settings.costs:
        raise UserError(
            f"--task=profile profiles anew; given costs={settings.costs!r}: leave them out"
        )
    if settings.objective not in _PREDICTORS:
        raise UserError(
            f"--task=profile calibrates {' and '.join(_PREDICTORS)}; given "
            f"objective={settings.objective!r}: give one of them"
        )
    workdirs.claim(workdir, display, [settings.graph])
    runs.write_json(workdir / "config.json", settings.to_dict())
    environment = outputs.environment() | hosts.record(target.hosts)
    runs.write_json(workdir / "environment.json", environment)
    with target_lib.accurate(target, settings, display) as (target, measurer):
        fidelity = _calibrated(settings, workdir, target, measurer, display)
        saved = saved_costs.read(workdir / saved_costs.FILE)
        environment |= target_lib.told_conditions(saved, settings, measurer, display)
    runs.write_json(workdir / "environment.json", environment)
    runs.write_json(workdir / "fidelity.json", fidelity)
    _print(fidelity, display.console)
    if not fidelity["calibration_kept"]:
        display.say("the profile stands: placements that it has not seen gain by no calibration")
    display.console.print(f"costs: {workdir / 'profile.json'}", markup=False, soft_wrap=True)
    with faults.told_last() as kept:
        figures.of_fidelity(fidelity, workdir, display.console, kept)
    return fidelity


def _calibrated(
    settings: Settings,
    workdir: Path,
    target: target_lib.Target,
    measurer: Measurer,
    display: progress.Display,
) -> dict[str, Any]:
    saved = target_lib.profiled(settings, target.net, measurer, workdir, display)
    saved.pop("calibration", None)  # of an earlier run of this task
    profiled = target_lib.cost_model(target.net.graph, saved)
    before = loading.search_problem(target.net, profiled, target.names, settings.objective)
    rng = np.random.default_rng(settings.seed)
    shape = before.coarse.graph.num_ops, target.num_devices
    seen = _placements(_draw(rng, shape, settings.calibration_placements))
    seen_s, known, _ = _measure(settings, workdir, before, measurer, seen, "calibrating", display)
    ran = known & np.isfinite(seen_s)
    at = [latency_terms.prepare(before.coarse, placement) for placement in seen[ran]]
    calibration = calibrate.cross_validated(
        before.coarse.costs, at, seen_s[ran].astype(float), rounds=_ROUNDS
    )
    costs = profiled
    if calibration is not None:
        saved |= {"calibration": calibrate.to_json(calibration)}
        costs = calibrate.apply(profiled, calibration)
    runs.write_json(workdir / "profile.json", saved)
    after = loading.search_problem(target.net, costs, target.names, settings.objective)
    found = learned_search.train("hsdag", settings, after, after.simulate, workdir, display)
    assert found.elite is not None
    drawn = _draw(rng, shape, settings.calibration_placements - len(found.elite))
    drawn += [("best found", placement) for placement in found.elite]
    kinds, held_out = [kind for kind, _ in drawn], _placements(drawn)
    held_out_s, known, wrong = _measure(
        settings, workdir, after, measurer, held_out, "checking", display
    )
    held_out, held_out_s, wrong = held_out[known], held_out_s[known], wrong[known]
    kinds = [kind for kind, is_known in zip(kinds, known, strict=True) if is_known]
    rows, predicted_s = [], np.empty(0)
    for name, predict in _PREDICTORS[settings.objective].items():
        for which, problem in (("profiled", before), ("calibrated", after)):
            predicted_s = predict(problem.coarse, held_out)
            rows += _rows(kinds, held_out_s, predicted_s, {"predicted by": name, "costs": which})
    return {
        "graph": target.net.graph.name,
        "devices": list(target.labels),
        "backend": settings.backend,
        "inferences": ROUNDS,
        "calibrated_on": int(ran.sum()),
        "calibration_kept": calibration is not None,
        "rows": rows,
        "placements": [
            {
                "kind": kind,
                "measured_s": float(measured_s),
                "predicted_s": float(seconds),  # by the last predictor, at calibrated costs
                "wrong_output": bool(is_wrong),
            }
            for kind, measured_s, seconds, is_wrong in zip(
                kinds, held_out_s, predicted_s, wrong, strict=True
            )
        ],
    }


def _simulated(problem: Instance, placements: np.ndarray) -> np.ndarray:
    return np.asarray(problem.evaluate(placements))


def _in_segments(problem: Instance, placements: np.ndarray) -> np.ndarray:
    return np.array([segments.latency_s(problem, placement) for placement in placements])


# How each objective's placements are predicted, the most faithful way last.
_PREDICTORS: dict[str, dict[str, Callable[[Instance, np.ndarray], np.ndarray]]] = {
    "serial": {"serial": _simulated},
    "makespan": {"makespan": _simulated, "segments": _in_segments},
}


def _draw(
    rng: np.random.Generator, shape: tuple[int, int], count: int
) -> list[tuple[str, np.ndarray]]:
    """Random coarse placements, contiguous and fine-grained in turn.

    A contiguous one cuts the topological order into up to `_MOST_CUTS` + 1 segments; of a
    fine-grained one each operation leaves its main device with a probability that is drawn first.
    """
    num_ops, num_devices = shape
    drawn = []
    for i in range(count):
        main = rng.integers(num_devices)
        if i % 2 == 0:
            cuts = min(int(rng.integers(1, _MOST_CUTS + 1)), num_ops - 1)
            starts = rng.choice(np.arange(1, num_ops), cuts, replace=False)
            step = rng.integers(1, num_devices, num_ops) * np.isin(np.arange(num_ops), starts)
            drawn.append(("contiguous", (main + np.cumsum(step)) % num_devices))
        else:
            elsewhere = rng.random(num_ops) < rng.choice(_FLIPPED)
            step = rng.integers(1, num_devices, num_ops) * elsewhere
            drawn.append(("fine-grained", (main + step) % num_devices))
    return [(kind, placement.astype(np.int32)) for kind, placement in drawn]


def _placements(drawn: list[tuple[str, np.ndarray]]) -> np.ndarray:
    """int32 [M, N]."""
    return np.array([placement for _, placement in drawn])


def _measure(
    settings: Settings,
    workdir: Path,
    problem: loading.SearchProblem,
    measurer: Measurer,
    placements: np.ndarray,
    what: str,
    display: progress.Display,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measures placements int32 [M, N] as far as `time_limit_s` allows, the first few always.

    Returns:
      Seconds [M], inf of what did not run; bool [M], which there was time for; and bool [M], whose
      outputs are wrong.

    What was measured before an interruption is not measured again. Wrong outputs take as long as
    right ones, so that such placements are timed and counted.
    """
    measured = evaluate_lib.MeasuredEvaluate(
        measurer,
        problem.coarse.graph.num_ops,
        lambda placement: loading.candidate(problem, placement, measurer.devices, settings.backend),
        evaluate_lib.MeasurementCache(workdir / "calibration.jsonl"),
        min_rounds=ROUNDS,
        time_limit_s=0.0,
        compile_s=settings.time_limit_s,
        accept_wrong=True,
    )
    latency_s = np.full(len(placements), np.inf)
    count, until_s = 0, time.monotonic() + settings.time_limit_s
    with display.phase(what, progress.Goal(len(placements), settings.time_limit_s)) as phase:
        while count < len(placements) and (count == 0 or time.monotonic() < until_s):
            several = placements[count : count + _AT_ONCE]
            latency_s[count : count + len(several)] = measured(several)
            count += len(several)
            phase.update(count)
    known = np.array([measured.is_known(placement) for placement in placements])
    if not known.any():
        raise UserError(
            f"time_limit_s={settings.time_limit_s:g} leaves no time to measure a placement of this "
            "model; give a longer --config.time_limit_s"
        )
    if not known.all():
        display.warn(
            f"{what} was cut short at {settings.time_limit_s:g} s: {known.sum()} of {len(known)} "
            "placements are measured; give it longer with --config.time_limit_s"
        )
    return latency_s, known, np.array([measured.outputs_wrong(p) for p in placements])


def _rows(
    kinds: list[str], measured_s: np.ndarray, predicted_s: np.ndarray, about: dict[str, str]
) -> list[dict[str, Any]]:
    """Rank correlation and errors, of all placements and of each kind."""
    rows = []
    for kind in ("all", *dict.fromkeys(kinds)):
        of_kind = np.array([kind in ("all", k) for k in kinds])
        chosen = of_kind & np.isfinite(measured_s)
        rows.append(
            about
            | {
                "kind": kind,
                "placements": int(chosen.sum()),
                "failed": int((of_kind & ~chosen).sum()),
            }
            | _agreement(predicted_s[chosen], measured_s[chosen])
        )
    return rows


def _agreement(predicted_s: np.ndarray, measured_s: np.ndarray) -> dict[str, float]:
    """Returns rank correlation (nan if either side is constant) and errors (nan if empty)."""
    from scipy import stats  # takes a second to import

    error = np.abs(predicted_s / measured_s - 1)
    ordered = all(len(np.unique(seconds)) > 1 for seconds in (predicted_s, measured_s))
    return {
        "spearman": float(stats.spearmanr(predicted_s, measured_s)[0]) if ordered else np.nan,
        "median_error": float(np.median(error)) if error.size else np.nan,
        "p90_error": float(np.quantile(error, 0.9)) if error.size else np.nan,
    }


def _print(fidelity: dict[str, Any], console: Console) -> None:
    wrong = sum(placement["wrong_output"] for placement in fidelity["placements"])
    title = (
        f"{fidelity['graph']}: predicted against measured, {fidelity['inferences']} "
        f"inferences a placement; {wrong} of {len(fidelity['placements'])} compute wrong outputs"
    )
    table = Table(title=Text(printable.text(title)), box=box.SIMPLE_HEAD)
    texts = ("predicted by", "costs", "placements")
    for column in (*texts, "n", "Spearman", "median error", "90th percentile"):
        table.add_column(column, justify="left" if column in texts else "right")
    for row in fidelity["rows"]:
        table.add_row(
            row["predicted by"],
            row["costs"],
            row["kind"],
            str(row["placements"]),
            *("-" if np.isnan(row[key]) else f"{row[key]:{form}}" for key, form in _SHOWN.items()),
        )
    words.show(table, console)
