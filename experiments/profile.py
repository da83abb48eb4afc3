"""The `profile` task: what the model costs on the devices, calibrated, and how far that is right.

Writes profile.json, which `--config.costs` reads, and fidelity.json: of placements that calibration
did not see, how far the `serial` objective's prediction is from what HETERO takes. Half of them are
contiguous, half fine-grained; the last are the fastest that a search finds in the simulator.
"""

from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table
from scipy import stats

from experiments import build, search, subject
from placement import simulators
from placement.costs import calibrate
from placement.graphs import coarsen
from placement.reporting import runs
from placement.runtime import evaluate as evaluate_lib
from placement.runtime.evaluate import MeasuredEvaluate
from placement.runtime.measure import Measurer
from placement.types import CostModel, Problem

ROUNDS = 30  # inferences of every placement
_AT_ONCE = 15
_MOST_CUTS = 8
_FLIPPED = (0.03, 0.1, 0.25, 0.5)


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Profiles, calibrates, and checks the calibration on as many placements again.

    Returns:
      What fidelity.json holds.

    Raises:
      ValueError: anything about the configuration that cannot be run, in one line.
    """
    build.check(config)
    about = subject.find(config)
    if not about.present:
        raise ValueError(
            f"--task=profile measures, and the devices of graph={config.graph!r}, "
            f"devices={config.devices!r} are described; give present devices, such as "
            "--config.devices=host"
        )
    if config.objective != "serial" or config.costs:
        raise ValueError(
            f"--task=profile calibrates objective='serial' and profiles anew; given "
            f"objective={config.objective!r}, costs={config.costs!r}: leave both out"
        )
    runs.prepare_workdir(workdir)
    runs.write_json(workdir / "config.json", config.to_dict())
    console = Console()
    with Measurer(
        about.net.model, about.present, seed=config.seed, input_values=config.input_values
    ) as measurer:
        fidelity = _calibrated(config, workdir, about, measurer, console)
    runs.write_json(workdir / "fidelity.json", fidelity)
    _print(fidelity, console)
    console.print(f"costs: {workdir / 'profile.json'}", markup=False, soft_wrap=True)
    return fidelity


def _calibrated(
    config: ConfigDict,
    workdir: Path,
    about: subject.Subject,
    measurer: Measurer,
    console: Console,
) -> dict[str, Any]:
    saved = subject.profiled(config, measurer, workdir, console)
    saved.pop("calibration", None)  # of an earlier run of this task
    graph, assignment = about.net.graph, about.net.coarsening.assignment
    profiled = subject.cost_model(graph, saved)
    # Wrong outputs take as long as right ones, so such placements are timed and counted.
    cache = evaluate_lib.MeasurementCache(workdir / "calibration.jsonl")
    measured = evaluate_lib.as_evaluate(
        measurer, graph.op_names, cache, min_rounds=ROUNDS, time_limit_s=0.0, accept_wrong=True
    )
    rng = np.random.default_rng(config.seed)
    shape = about.net.coarsening.graph.num_ops, about.num_devices
    drawn = _draw(rng, shape, config.calibration_placements)
    seen = _lifted(assignment, drawn)
    seen_s = _measure(measured, seen, "calibrating", console)
    ran = np.isfinite(seen_s)
    calibration = calibrate.fit(graph, profiled, seen[ran], seen_s[ran])
    runs.write_json(
        workdir / "profile.json", saved | {"calibration": calibrate.to_json(calibration)}
    )
    costs = calibrate.apply(profiled, calibration)
    setting = build.setting(about.net, costs, about.names, config.objective)
    found = search.train(
        "hsdag", config, setting, setting.simulate, workdir, seed=config.seed, console=console
    )
    drawn = _draw(rng, shape, config.calibration_placements - len(found.elite))
    held_out = drawn + [("best found", placement) for placement in found.elite]
    lifted = _lifted(assignment, held_out)
    held_out_s = _measure(measured, lifted, "checking", console)
    return {
        "graph": graph.name,
        "devices": list(about.labels),
        "inferences": ROUNDS,
        "calibrated_on": int(ran.sum()),
        "rows": _rows([kind for kind, _ in held_out], held_out_s, lifted, about, profiled, costs),
        "placements": [
            {
                "kind": kind,
                "measured_s": float(seconds),
                "predicted_s": float(predicted_s),
                "wrong_output": measured.outputs_wrong(placement),
            }
            for (kind, _), seconds, predicted_s, placement in zip(
                held_out, held_out_s, _predict(about, costs, lifted), lifted, strict=True
            )
        ],
    }


def _draw(
    rng: np.random.Generator, shape: tuple[int, int], count: int
) -> list[tuple[str, np.ndarray]]:
    """Random coarse placements, contiguous and fine-grained in turn.

    A contiguous one cuts the topological order into up to `_MOST_CUTS` + 1 stretches; of a
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


def _lifted(assignment: np.ndarray, drawn: list[tuple[str, np.ndarray]]) -> np.ndarray:
    """int32 [M, N], of all operations."""
    return np.asarray(coarsen.lift(assignment, np.array([placement for _, placement in drawn])))


def _measure(
    measured: MeasuredEvaluate, placements: np.ndarray, what: str, console: Console
) -> np.ndarray:
    """Seconds [M]; what was measured before an interruption is not measured again."""
    found = []
    for start in rich_progress.track(
        range(0, len(placements), _AT_ONCE), description=what, console=console
    ):
        found.append(measured(placements[start : start + _AT_ONCE]))
    return np.concatenate(found)


def _predict(about: subject.Subject, costs: CostModel, placements: np.ndarray) -> np.ndarray:
    problem = Problem(about.net.graph, costs, "serial", about.names)
    return np.asarray(simulators.evaluator(problem)(placements))


def _rows(
    kinds: list[str],
    measured_s: np.ndarray,
    placements: np.ndarray,
    about: subject.Subject,
    profiled: CostModel,
    costs: CostModel,
) -> list[dict[str, Any]]:
    """Rank correlation and errors, of all placements and of each kind."""
    rows = []
    for source, used in (("profiled", profiled), ("calibrated", costs)):
        predicted_s = _predict(about, used, placements)
        for kind in ("all", *dict.fromkeys(kinds)):
            of_kind = np.array([kind in ("all", k) for k in kinds])
            chosen = of_kind & np.isfinite(measured_s)
            error = np.abs(predicted_s[chosen] / measured_s[chosen] - 1)
            rows.append(
                {
                    "costs": source,
                    "kind": kind,
                    "placements": int(chosen.sum()),
                    "failed": int((of_kind & ~chosen).sum()),
                    "spearman": float(stats.spearmanr(predicted_s[chosen], measured_s[chosen])[0]),
                    "median_error": float(np.median(error)),
                    "p90_error": float(np.quantile(error, 0.9)),
                }
            )
    return rows


def _print(fidelity: dict[str, Any], console: Console) -> None:
    wrong = sum(placement["wrong_output"] for placement in fidelity["placements"])
    table = Table(
        title=f"{fidelity['graph']}: predicted against measured, {fidelity['inferences']} "
        f"inferences a placement; {wrong} of {len(fidelity['placements'])} compute wrong outputs"
    )
    for column in ("costs", "placements", "n", "Spearman", "median error", "90th percentile"):
        table.add_column(column, justify="left" if column in ("costs", "placements") else "right")
    for row in fidelity["rows"]:
        table.add_row(
            row["costs"],
            row["kind"],
            str(row["placements"]),
            f"{row['spearman']:.3f}",
            f"{row['median_error']:.1%}",
            f"{row['p90_error']:.1%}",
        )
    console.print(table)
