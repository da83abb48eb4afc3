"""The `list` task: graphs, methods, devices, objectives and configurations.

What it says of a thing is the first line of what documents it, where it is defined.
"""

import inspect
from pathlib import Path
from typing import Any

from experiments import usage
from placement import methods, simulators, solvers, zoo
from placement.costs import roofline
from placement.pipeline import loading
from placement.pipeline import method_runs as here
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.runtime import devices
from placement.zoo import synthetic


def run(
    settings: Settings | None, workdir: Path | None, display: progress.Display = progress.NORMAL
) -> dict[str, dict[str, str]]:
    """Prints what there is, a line each; needs neither configuration nor run directory.

    Returns:
      By section, names and what they are.
    """
    del settings, workdir
    found = sections()
    console = display.console
    width = console.width if console.is_terminal else 0
    for title, texts in found.items():
        console.print(f"{title}:", markup=False, highlight=False, style="bold")
        listed = usage.listed(texts, width=width)
        console.print(listed, markup=False, highlight=False, soft_wrap=True)
    return found


def sections() -> dict[str, dict[str, str]]:
    """Lists what there is, by section: names and what they are."""
    graphs = zoo.summaries()
    graphs |= {f"synthetic:family={n}": text for n, text in synthetic.summaries().items()}
    return {
        "graphs (--config.graph=), or the path of a model": {
            name: text.rstrip(".") for name, text in graphs.items()
        },
        "learned methods (--config.method=)": {
            name: method.summary for name, method in methods.LEARNED.items()
        },
        "searches and solvers, of these objectives": {
            name: f"{_line(method)} [{_objectives(method)}]"
            for name, method in (methods.SEARCHES | methods.SOLVERS).items()
        },
        "partitioners": {name: _line(method) for name, method in methods.PARTITIONERS.items()},
        "without a search": {
            here.HETERO: _first_line(here.openvino_hetero),
            **{name: _line(method) for name, method in methods.BASELINES.items()},
        },
        "devices here (--config.devices=)": _devices(),
        f"described devices (--config.devices={roofline.PREFIX}KIND,KIND)": {
            kind: spec.summary for kind, spec in roofline.SPECS.items()
        },
        "objectives (--config.objective=)": {
            name: _first_line(inspect.getmodule(objective.latency))
            .removeprefix(f"The `{name}` objective")
            .lstrip(": ")
            for name, objective in simulators.OBJECTIVES.items()
        },
        "backends (--config.backend=), and what predicts them": {
            name: f"{backend.summary} [{', '.join(backend.objectives)}]"
            for name, backend in loading.BACKENDS.items()
        },
        "configurations (--config=)": usage.configs(),
    }


def _line(method: methods.Method) -> str:
    lacking = method.missing()
    return method.summary + (f" (not here: {lacking})" if lacking else "")


def _objectives(method: methods.Method) -> str:
    return "any" if method.objectives == solvers.ANY else ", ".join(method.objectives)


def _devices() -> dict[str, str]:
    found = {}
    for spec in ("auto", "host", *devices.describe_machine()["devices"]):
        found[spec] = "; ".join(device.label for device in devices.resolve(spec))
    return found


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").partition("\n")[0].rstrip(".")
