"""What a run is about: a model, the devices it may use and what it costs on them.

Devices are either present, then they can be profiled and measured, or described: by a workload
file, by rooflines or by costs saved on another machine. A described one is only ever simulated.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement.costs import calibrate, roofline, tables, transfers
from placement.errors import UserError
from placement.graphs import coarsen
from placement.pipeline import loading, saved_costs
from placement.pipeline.console import progress
from placement.pipeline.distributed import hosts
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.runtime import devices as devices_lib
from placement.runtime.cluster import hosts as hosts_lib
from placement.runtime.cluster.measurer import ClusterMeasurer
from placement.runtime.measurement import precision, transfer_costs
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Profile, Transfers
from placement.types import CostModel, OpGraph

# Of the seconds for timing placements, profiling the operations takes one part in so many.
_PROFILED = 5
_LONGER = 4  # times the seconds of timing placements halve their intervals


class Target(NamedTuple):
    """A model on devices."""

    net: loading.Network
    names: tuple[str, ...]  # of the devices, in the order of a placement's indices
    labels: tuple[str, ...]  # of the same, for reports
    present: tuple[devices_lib.Device, ...]  # the same, if they are present
    costs: CostModel | None  # if they are described
    references: tuple[devices_lib.Device, ...] = ()  # what present ones have to be compared with
    hosts: hosts_lib.Choice | None = None  # that have the present ones; None: this machine

    @property
    def num_devices(self) -> int:
        """D."""
        return len(self.names)


def find(settings: Settings) -> Target:
    """Loads the model and finds the devices; writes nothing.

    Raises:
      UserError: no such model or devices, or an evaluation that needs devices that are not there.
    """
    net = loading.network(settings)
    described = _described(settings, net)
    if described is None:
        choice = hosts.find() if settings.measure_on == "ray" else None
        devices, references = _resolved(settings, choice)
        objectives = loading.BACKENDS[settings.backend].objectives
        if settings.evaluate != "simulate" and settings.objective not in objectives:
            raise UserError(
                f"objective={settings.objective!r} does not predict what "
                f"backend={settings.backend!r} measures; give {_matching(settings)}, or "
                "--config.evaluate=simulate"
            )
        names, labels = tuple(d.name for d in devices), tuple(d.label for d in devices)
        return Target(net, names, labels, devices, None, references, choice)
    if settings.evaluate == "measure":
        raise UserError(
            f"evaluate='measure', but graph={settings.graph!r} with devices={settings.devices!r} "
            "has described devices, which cannot be measured; give --config.evaluate=simulate"
        )
    return described


def _resolved(
    settings: Settings, choice: hosts_lib.Choice | None
) -> tuple[tuple[devices_lib.Device, ...], ...]:
    """The devices, and what they have to be compared with, as the host that has them sees them."""
    asked = settings.devices, settings.backend == "concurrent", settings.objective == "max_load"
    if choice is None:
        return devices_lib.with_references(*asked)
    return hosts_lib.call(choice.hosts[0], devices_lib.with_references, *asked)


def _described(settings: Settings, net: loading.Network) -> Target | None:
    """The subject if its devices are described, else None."""
    if net.workload is not None:
        if settings.devices != "auto" or settings.costs:
            raise UserError(
                f"graph={settings.graph!r} brings devices and costs of its own; leave "
                "--config.devices=auto and --config.costs empty"
            )
        names = net.workload.devices
        return Target(net, names, names, (), net.workload.costs)
    if settings.devices.strip().startswith(roofline.PREFIX):
        if settings.costs:
            raise UserError(
                f"devices={settings.devices!r} and costs={settings.costs!r} both say what "
                "operations cost; give one of them"
            )
        names = roofline.devices(settings.devices)
        labels = tuple(f"{name} [described]" for name in names)
        return Target(net, names, labels, (), roofline.cost_model(net.graph, names))
    if net.model is None:
        raise UserError(
            f"graph={settings.graph!r} is no model that a device could run; describe devices, such "
            "as --config.devices=roofline:cpu,gpu,gpu"
        )
    if settings.costs and settings.evaluate == "simulate":
        saved = saved_costs.read(Path(settings.costs))
        labels = _labels(saved)
        names = tuple(label.split(" [")[0] for label in labels)
        return Target(net, names, labels, (), cost_model(net.graph, saved))
    return None


@contextlib.contextmanager
def opened(
    target: Target, settings: Settings, workdir: Path, display: progress.Display
) -> Iterator[tuple[Target, CostModel, Measurer | None, dict[str, Any]]]:
    """The costs, and what measures where the devices are present, alive meanwhile.

    The subject is then on those of its devices whose outputs are right (`accurate`). And of
    environment.json under which conditions these measured, complete at the end.
    """
    _introduce(display, target)
    if target.costs is not None:
        display.say("the devices are described, not present: nothing is measured")
        yield target, target.costs, None, {}
        return
    with accurate(target, settings, display) as (target, measurer):
        saved = profiled(settings, target.net, measurer, workdir, display)
        conditions: dict[str, Any] = {}
        yield target, cost_model(target.net.graph, saved), measurer, conditions
        conditions |= told_conditions(saved, settings, measurer, display)


def told_conditions(
    saved: dict[str, Any], settings: Settings, measurer: Measurer, display: progress.Display
) -> dict[str, Any]:
    """Under which conditions a profile and placements were measured; says what disturbed these."""
    conditions = {"profiling": saved["conditions"]} if "conditions" in saved else {}
    found = measurer.conditions().get("measure")
    if found is None:
        return conditions
    if busy := found.busy():
        display.warn(
            f"the machine was busy while placements were timed: {busy}; wait until it is idle and "
            f"run the same command again, or measure longer: --config.measure_s="
            f"{_LONGER * settings.measure_s:g}"
        )
    return conditions | {"measuring": found.to_json()}


@contextlib.contextmanager
def accurate(
    target: Target, settings: Settings, display: progress.Display
) -> Iterator[tuple[Target, Measurer]]:
    """Opens what measures on present devices, each in a precision in which it is right."""
    with contextlib.ExitStack() as stack:
        measurer = stack.enter_context(measuring(target, settings, display))
        with display.phase("checking the devices' outputs"):
            right = precision.choose(measurer, target.present, display.warn)
        if right != target.present:
            stack.close()
            names, labels = tuple(d.name for d in right), tuple(d.label for d in right)
            target = target._replace(present=right, names=names, labels=labels)
            measurer = stack.enter_context(measuring(target, settings, display))
        yield target, measurer


@contextlib.contextmanager
def measuring(target: Target, settings: Settings, display: progress.Display) -> Iterator[Measurer]:
    """Opens what measures on the present devices, here or on hosts."""
    model = target.net.model
    given = loading.inputs(settings, model)
    if target.hosts is None:
        with (
            LocalMeasurer(model, target.present, inputs=given) as measurer,
            display.watching(measurer),
        ):
            yield measurer
        return
    hosts.introduce(target.hosts, display)
    on = target.hosts.hosts
    with ClusterMeasurer(model, target.present, on, inputs=given, say=display.warn) as spread:
        yield spread
        display.detail("requests answered by hosts: " + str(spread.answers))
        if spread.losses:
            display.warn(f"work was lost with a host, and done again, {spread.losses} times")


def _matching(settings: Settings) -> str:
    """The flags that would make backend and objective match, either way."""
    objectives = " or ".join(loading.BACKENDS[settings.backend].objectives)
    backends = [name for name, b in loading.BACKENDS.items() if settings.objective in b.objectives]
    other = f", or --config.backend={backends[0]}" if backends else ""
    return f"--config.objective={objectives}{other}"


def _introduce(display: progress.Display, target: Target) -> None:
    """Says what is placed, and where."""
    net, coarse = target.net, target.net.coarsening.graph
    smaller = (
        f"; coarsened to {coarse.num_ops} and {coarse.num_edges}" if coarse is not net.graph else ""
    )
    display.say(
        f"{net.graph.name}: {net.graph.num_ops} operations, {net.graph.num_edges} edges{smaller}"
    )
    if net.estimated:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(net.estimated.items()))
        display.say(f"FLOPs estimated by bytes moved: {listed}")
    display.say("devices: " + "; ".join(target.labels))


def profiled(
    settings: Settings,
    net: loading.Network,
    measurer: Measurer,
    workdir: Path,
    display: progress.Display,
) -> dict[str, Any]:
    """Returns what the devices cost, as JSON-able data: profiled, or read from where it was saved.

    That is `config.costs`, or profile.json of this run directory if it is of the same model,
    machine and devices.

    Raises:
      UserError: `config.costs` cannot be read or are of other devices.
    """
    given = tuple(device.label for device in measurer.devices)
    what = [measurer.fingerprint, given, settings.backend]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()
    if settings.costs:
        saved = saved_costs.read(Path(settings.costs))
        if _labels(saved) != given:
            raise UserError(
                f"costs={settings.costs!r} are of {', '.join(_labels(saved))}, but the devices are "
                f"{', '.join(given)}; give --config.evaluate=simulate to use them without these"
            )
        if (settings.backend == "concurrent") != ("handovers" in saved):
            raise UserError(
                f"costs={settings.costs!r} are not those of backend={settings.backend!r}; give the "
                "profile.json of a run with that backend"
            )
        if settings.measure_on != "here" and saved.get("key") != key:
            raise UserError(
                f"costs={settings.costs!r} are not of this model on the hosts' processor and "
                "version of OpenVINO; leave them out to profile a host"
            )
        display.detail(f"costs read from {settings.costs}")
        return saved
    path = workdir / saved_costs.FILE
    saved = saved_costs.read(path) if path.exists() else {}
    if saved.get("key") == key and not _lacks(saved, settings.time_limit_s):
        display.detail(f"profiled before: {path}")
    else:
        saved = _profiled_now(settings, net, measurer, display) | {"key": key}
        runs.write_json(path, saved)
    _tell_profile(saved, path, display)
    return saved


def _lacks(saved: dict[str, Any], time_limit_s: float) -> bool:
    """Whether a profile left out what there is time for now, or is too old to say."""
    under = saved.get("conditions")
    return under is None or (bool(under["left_out"]) and time_limit_s > under["limit_s"])


def _tell_profile(saved: dict[str, Any], path: Path, display: progress.Display) -> None:
    """Prints the transfer costs, the measurements left out, and disturbances of the profile."""
    for transfer in saved.get("transfers", ()):
        display.say(f"transfer {transfers.in_words(transfer)}")
    under = saved.get("conditions")
    if under is None:
        return
    if under["left_out"]:
        display.warn(
            f"profiling was cut short at {under['limit_s']:g} s, as every search is: "
            f"{'; '.join(under['left_out'])}; give it longer with --config.time_limit_s"
        )
    if under["busy"]:
        display.warn(
            f"the machine was busy while the devices were profiled: {under['busy']}; costs may be "
            f"too high: wait until it is idle, remove {path} and run the same command again"
        )


def _profiled_now(
    settings: Settings, net: loading.Network, measurer: Measurer, display: progress.Display
) -> dict[str, Any]:
    """Profiles the devices, in `time_limit_s` as far as costs can be told in that time."""
    began_s = time.monotonic()
    limits = progress.Goal(1, settings.time_limit_s)
    with display.phase("profiling the devices", limits) as phase:
        phase.note("operations, on each device alone")
        seconds = settings.measure_s / _PROFILED
        profiles = measurer.ask(Profile(measurer.devices, seconds, settings.time_limit_s))
        phase.note("tensors, from device to device")
        left_s = max(0.0, began_s + settings.time_limit_s - time.monotonic())
        if settings.backend == "hetero":
            found = measurer.ask(Transfers(measurer.devices, left_s))
            saved = tables.to_json(profiles, transfers.matrices(found, len(profiles)))
        else:
            submodels, found = _submodels(net, measurer, profiles, left_s)
            saved = tables.to_json(profiles, submodels.transfers)
            saved["handovers"] = tables.submodels_to_json(submodels)
    labels = [device.label for device in measurer.devices]
    took = {"wall_s": time.monotonic() - began_s, "limit_s": settings.time_limit_s}
    under = took | measurer.conditions().get("profile", Conditions()).to_json()
    return saved | {"transfers": transfers.to_json(found, labels), "conditions": under}


def _submodels(
    net: loading.Network,
    measurer: Measurer,
    profiles: tuple[tables.DeviceProfile, ...],
    limit_s: float,
) -> tuple[tables.SubmodelCosts, tuple[transfers.TransferFit, ...]]:
    groups = coarsen.members(net.graph, net.coarsening.assignment)
    able = np.array(
        [[not profile.unsupported.intersection(group) for profile in profiles] for group in groups]
    )
    return transfer_costs.measure(measurer, net.coarsening.graph, groups, able, limit_s)


def cost_model(graph: OpGraph, saved: dict[str, Any]) -> CostModel:
    """The costs that saved data stands for: as profiled, then as calibrated if it was."""
    costs = tables.cost_model(graph, *tables.from_json(saved))
    if "handovers" in saved:
        costs = tables.concurrent(graph, costs, tables.submodels_from_json(saved["handovers"]))
    if "calibration" not in saved:
        return costs
    return calibrate.apply(costs, calibrate.from_json(saved["calibration"]))


def _labels(saved: dict[str, Any]) -> tuple[str, ...]:
    return tuple(profile["device"] for profile in saved["profiles"])
