"""Running the command line in tests."""

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from placement.reporting import details

ROOT = Path(__file__).parents[2]
_TASKS = ("advise", "compare", "deploy", "list", "place", "profile", "report", "solve")


# Processes that compile the same function do it once, and so do later runs of the tests.
COMPILATION_CACHE = {
    "jax_compilation_cache_dir": str(ROOT / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
QUICK = {"jax_disable_most_optimizations": True, **COMPILATION_CACHE}
# What commands load, and the server that forks for them once for all.
LOADED = [
    *(f"placement.pipeline.{task}" for task in _TASKS),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.figure"),
    "scipy.stats",
]


def run(
    workdir: Path,
    *flags: str,
    config: str = "configs/smoke.py",
    **how: Any,
) -> tuple[int, str, str]:
    """Returns exit code, standard output and standard error of a task; `how` as `answer`."""
    return answer(f"--config={config}", f"--workdir={workdir}", *flags, **how)


def answer(
    *argv: str,
    plots: bool = False,
    broken: Callable[[], None] | None = None,
    limit_s: float = 600.0,
) -> tuple[int, str, str]:
    """Returns exit code, standard output and standard error of a command.

    A server that has loaded JAX and OpenVINO forks for each, before either has started any thread.

    Args:
      *argv: of the command.
      plots: whether the extra `plots` is installed: figures take longer than most commands.
      broken: called in the process before the command runs; a function of a module.
      limit_s: when it is late.

    Raises:
      AssertionError: it is late.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdout", "stderr")]
        process = context.Process(target=_main, args=(list(argv), *streams, plots, broken))
        process.start()
        process.join(limit_s)
        if process.exitcode is None:
            process.kill()
            raise AssertionError(f"it does not end within {limit_s:g} s")
        return process.exitcode, *(stream.read_text(errors="replace") for stream in streams)


def collect_less() -> None:
    """Lets the garbage collector skip what is loaded; JAX's tracing makes it run all the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def prepare(plots: bool) -> None:
    """Makes this process quick: with the settings `QUICK`, and with figures only if wanted."""
    import jax

    collect_less()
    for name, value in QUICK.items():
        jax.config.update(name, value)
    if not plots:
        sys.modules["matplotlib.figure"] = None  # type: ignore[assignment]


def _main(
    argv: list[str], out: Path, err: Path, plots: bool, broken: Callable[[], None] | None
) -> None:
    for stream, path in ((sys.stdout, out), (sys.stderr, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream.fileno())
    os.environ["COLUMNS"] = "120"
    sys.argv = ["experiments.main", *argv]
    from experiments import main

    prepare(plots)
    if broken is not None:
        broken()
    main.cli()


def start(
    workdir: Path,
    *flags: str,
    config: str = "configs/smoke.py",
    before: Callable[[], None] | None = None,
) -> subprocess.Popen:
    """Starts a task in a process that signals can be sent to; it calls `before` first."""
    command = [sys.executable, "-m", "experiments.main", f"--config={config}"]
    quick = {name.upper(): str(int(x) if x is True else x) for name, x in QUICK.items()}
    return subprocess.Popen(
        [*command, f"--workdir={workdir}", *flags],
        cwd=ROOT,
        env=os.environ | quick | {"COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


ROW_KEYS = {
    "method", "predicted_s", "own_best_s", "measured_s", "versus_best_single_device",
    "versus_interval",
    "bound_s", "gap", "search_s", "compile_s", "evaluations", "measurements",
    "num_devices", "status",
}  # fmt: skip


def check_summary(workdir: Path) -> dict:
    summary = json.loads((workdir / "summary.json").read_text())
    assert set(summary) - {"divisions", "memory", "shapes", "unsupported"} == {
        "graph", "devices", "objective", "starts", "seed", "rows", "best", "complete", "compute_s",
        "wall_s", *(["statistics"] if "graph" in summary["rows"][0] else []),
    }  # fmt: skip
    own = [row for row in summary["rows"] if "reference" not in row]
    assert all(set(row) - {"graph", "seed", "output_error", "same_as"} == ROW_KEYS for row in own)
    assert summary["best"] in [row["method"] for row in summary["rows"]]
    return summary


def check_details(workdir: Path) -> None:
    """Checks that details.json and placed.xml show the placement that the run wrote."""
    record = details.read(workdir / "details.json")
    assert record is not None
    placed = json.loads((workdir / "placement.json").read_text())
    summary = json.loads((workdir / "summary.json").read_text())
    (row,) = (row for row in summary["rows"] if row["method"] == placed["method"])
    names = list(placed["provenance"]["devices"])
    assert (record.method, record.objective) == (placed["method"], summary["objective"])
    assert placed["placement"] == {
        name: names[device]
        for name, device in zip(record.graph.op_names, record.op_placement, strict=True)
    }
    shown = (workdir / "placed.xml").read_text()
    assert all(f'device="{name}"' in shown for name in placed["placement"].values())
    for timeline in filter(None, (record.predicted, record.measured)):
        for span in timeline.spans:
            assert {int(record.placement[op]) for op in span.ops} == {span.device}
    assert (record.measured is None) == (row["measured_s"] is None)
    if record.measured is not None:
        ends_s = max(span.finish_s for span in record.measured.spans)
        assert 0.3 * row["measured_s"]["median"] < ends_s < 3 * row["measured_s"]["median"]
