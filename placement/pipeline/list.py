"""The `list` task: graphs, methods, devices and objectives.

The text about each is the first line of its docstring.
"""

import contextlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

from placement import arguments, methods, simulators, zoo
from placement.costs import roofline
from placement.errors import UserError
from placement.methods import learned
from placement.pipeline import loading
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.runtime import devices
from placement.runtime.models import operations, support
from placement.zoo import synthetic


def run(
    settings: Settings | None,
    workdir: Path | None,
    display: progress.Display = progress.DEFAULT_DISPLAY,
) -> dict[str, dict[str, str]]:
    """Prints one line about each, by section; needs neither settings nor a run directory."""
    del settings, workdir
    texts = sections()
    show(texts, display)
    return texts


def show(
    texts: dict[str, dict[str, str]], display: progress.Display = progress.DEFAULT_DISPLAY
) -> None:
    """Prints sections of names, each with the text about it, which a terminal wraps in a column."""
    console = display.console
    width = console.width if console.is_terminal else 0
    for title, entries in texts.items():
        display.result(f"{title}:")
        column = max(map(len, entries)) + 4
        for name, text in entries.items():
            lines = textwrap.wrap(text, max(20, width - column)) if width else [text]
            display.result(f"  {name}".ljust(column) + f"\n{' ' * column}".join(lines))


def method_sections() -> dict[str, dict[str, str]]:
    """Lists the methods, by kind."""
    kinds_by_title = {
        "learned methods (method=)": ("learned",),
        "searches and solvers, of these objectives": ("search", "solver"),
        "partitioners": ("partitioner",),
        "without a search": ("baseline", "openvino", "pretrained"),
    }
    return {
        title: {name: _describe(method) for name, method in methods.of_kind(*kinds).items()}
        for title, kinds in kinds_by_title.items()
    }


def hyper_parameter_section(method: str) -> dict[str, dict[str, str]]:
    """Lists the hyper-parameters of a learned method, `METHOD:name=value`, with their values."""
    name = method.partition(":")[0]
    arguments.check_choice("method", name, methods.METHODS)
    if not methods.is_learned(name):
        learners = ", ".join(methods.of_kind("learned"))
        raise UserError(f"{name} has no hyper-parameters; the methods that have: {learners}")
    values = learned.make(method, 2).hyper_parameters
    variants = ", ".join(methods.entry(name).load().variants)
    title = f"hyper-parameters of {method}, given as {name}:NAME=VALUE,..."
    return {title: {"variant": f"one of {variants}", **{k: str(v) for k, v in values.items()}}}


def device_sections() -> dict[str, dict[str, str]]:
    """Lists the devices of this machine, and the hardware that can be described."""

    labels = {}
    for spec in ("auto", "host", devices.PRECISIONS, *devices.describe_machine()["devices"]):
        with contextlib.suppress(UserError):  # a processor may have one precision only
            labels[spec] = "; ".join(device.label for device in devices.resolve(spec))
    return {
        "devices here (devices=)": labels,
        f"described devices (devices={roofline.PREFIX}KIND,KIND)": {
            kind: spec.summary for kind, spec in roofline.SPECS.items()
        },
    }


def support_sections(graph: str, input_shapes: str) -> dict[str, dict[str, str]]:
    """Lists how many operations of a model each device cannot run, then these with the reasons."""
    settings = Settings(graph=graph, input_shapes=input_shapes, devices="CPU")
    net = loading.load_network(settings)
    model = loading.require_model(net, graph)
    num_ops, counts, reasons = len(operations.computed_names(model)), {}, {}
    for device, unsupported in support.survey(model).items():
        num_unsupported = len(unsupported)
        counts[device] = f"{num_unsupported} of {num_ops} operations cannot run"
        if num_unsupported:
            reasons[f"operations that {device} cannot run"] = {
                op.name: f"{op.op_type} of {op.inputs}: {op.reason}" for op in unsupported
            }
    return {f"{net.graph.name} on the devices here": counts, **reasons}


def sections() -> dict[str, dict[str, str]]:
    """Lists everything by section: names, each with the text about it."""
    graphs = zoo.summaries()
    graphs |= {f"synthetic:family={n}": text for n, text in synthetic.summaries().items()}
    return {
        "graphs (graph=), or the path of a model": {
            name: text.rstrip(".") for name, text in graphs.items()
        },
        **method_sections(),
        **device_sections(),
        "objectives (objective=)": {
            name: _first_line(inspect.getmodule(objective.latency))
            .removeprefix(f"The `{name}` objective")
            .lstrip(": ")
            for name, objective in simulators.OBJECTIVES.items()
        },
        "backends (backend=), and what predicts them": {
            name: f"{backend.summary} [{', '.join(backend.objectives)}]"
            for name, backend in loading.BACKENDS.items()
        },
    }


def _describe(method: methods.Method) -> str:
    reason = method.missing()
    text = method.summary + (f" (not here: {reason})" if reason else "")
    if method.kind not in ("search", "solver"):
        return text
    is_general = method.objectives == methods.ALL_OBJECTIVES
    return f"{text} [{'any' if is_general else ', '.join(method.objectives)}]"


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").partition("\n")[0].rstrip(".")
