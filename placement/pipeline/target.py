"""The target of a run: a model and the devices that it is placed on, with their costs.

Devices are either present or described. Present devices can be profiled and measured. Described
devices come from a workload file, from rooflines or from costs saved on another machine; they can
only be simulated.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import placement
from placement.costs import roofline, tables, transfers
from placement.errors import UserError
from placement.graphs import coarsen
from placement.pipeline import accuracy, loading, saved_costs
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings
from placement.problem import Problem
from placement.reporting import runs, units
from placement.runtime import cluster
from placement.runtime import devices as devices_lib
from placement.runtime.measurement import transfer_costs
from placement.runtime.measurement.conditions import Conditions
from placement.runtime.measurement.local import LocalMeasurer
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Profile, Reasons, Transfers
from placement.runtime.models.outputs import OutputCheck
from placement.types import CostModel


class Target(NamedTuple):
    """A model on D devices."""

    net: loading.Network
    names: tuple[str, ...]  # of the devices, in the order of a placement's indices
    labels: tuple[str, ...]  # of the devices, for reports
    present: tuple[devices_lib.Device, ...]  # the devices; () if they are described
    costs: CostModel | None  # of all operations; None before present devices are profiled
    references: tuple[devices_lib.Device, ...] = ()  # baselines that present devices must beat
    hosts: cluster.Choice | None = None  # have the present devices; None: this machine
    divisions: tuple[accuracy.Division, ...] = ()  # of devices that compute some operations wrong
    # JSON-able `support.UnsupportedOp`s: the operations that a device cannot run, and why
    unsupported: tuple[dict[str, str], ...] = ()

    def problem(self, objective: str) -> Problem:
        """Makes the problem of placing the model; its devices are described, or profiled."""
        assert self.costs is not None
        problem = loading.make_problem(self.net, self.costs, self.names, objective)
        _ = problem.tables  # refuses too many devices before anything takes time
        return problem


def describe_host() -> dict[str, Any]:
    """Returns the properties that hosts must share for comparable measurements; JSON-able."""
    return devices_lib.describe_hardware() | {"placement": placement.__version__}


def print_hosts(choice: cluster.Choice, display: progress.Display) -> None:
    """Prints the hosts that measure, and warns about those that are left out."""
    display.say("hosts: " + ", ".join(host.name for host in choice.hosts))
    for line in choice.left_out:
        display.warn(f"host left out: {line}")


def find_target(settings: Settings, net: loading.Network | None = None) -> Target:
    """Loads the model, unless it is given, and finds the devices; writes nothing.

    Raises:
      UserError: no such model or devices, or described devices with an evaluation that measures.
    """
    net = net or loading.load_network(settings)
    described = _describe(settings, net)
    if described is not None:
        if settings.evaluate == "measure":
            raise UserError(
                f"evaluate='measure', but graph={settings.graph!r} with "
                f"devices={settings.devices!r} has described devices, which cannot be measured; "
                "set evaluate='simulate'"
            )
        return described
    if settings.devices.strip() == devices_lib.PRECISIONS and (
        settings.backend != "hetero" or settings.objective != "serial"
    ):
        raise UserError(
            f"devices={settings.devices!r} compute one after another, on the same threads, not "
            f"with backend={settings.backend!r} and objective={settings.objective!r}: set "
            "backend='hetero' and objective='serial'"
        )
    request = settings.devices, settings.objective
    choice = cluster.survey(describe_host) if settings.measure_on == "ray" else None
    if choice is None:
        devices, references = devices_lib.resolve_with_references(*request)
    else:
        devices, references = cluster.call(
            choice.hosts[0], devices_lib.resolve_with_references, *request
        )
    objectives = loading.BACKENDS[settings.backend].objectives
    if settings.evaluate != "simulate" and settings.objective not in objectives:
        remedy = f"objective={' or '.join(map(repr, objectives))}"
        for name, backend in loading.BACKENDS.items():
            if settings.objective in backend.objectives:
                remedy += f", or backend={name!r}"
        raise UserError(
            f"objective={settings.objective!r} does not predict what "
            f"backend={settings.backend!r} measures; set {remedy}, or "
            "evaluate='simulate'"
        )
    names, labels = tuple(d.name for d in devices), tuple(d.label for d in devices)
    return Target(net, names, labels, devices, None, references, choice)


def _describe(settings: Settings, net: loading.Network) -> Target | None:
    """Returns the target if its devices are described."""
    if net.workload is not None:
        if settings.devices != "auto" or settings.costs:
            raise UserError(
                f"graph={settings.graph!r} has its own devices and costs; set "
                "devices='auto' and leave costs out"
            )
        names = net.workload.devices
        return Target(net, names, names, (), net.workload.costs)
    if settings.devices.strip().startswith(roofline.PREFIX):
        if settings.costs:
            raise UserError(
                f"devices={settings.devices!r} and costs={settings.costs!r} both say what "
                "operations cost; set only one of them"
            )
        names = roofline.parse_devices(settings.devices)
        labels = tuple(f"{name} [described]" for name in names)
        return Target(net, names, labels, (), roofline.cost_model(net.graph, names))
    loading.require_model(net, settings.graph)
    if settings.costs and settings.evaluate == "simulate":
        saved = saved_costs.read(Path(settings.costs))
        labels = saved_costs.device_labels(saved)
        names = tuple(label.split(" [")[0] for label in labels)
        costs, unsupported = saved_costs.cost_model(net.graph, saved), saved.get("reasons", ())
        return Target(net, names, labels, (), costs, unsupported=tuple(unsupported))
    return None


@contextlib.contextmanager
def open_target(
    target: Target, settings: Settings, workdir: Path, display: progress.Display
) -> Iterator[tuple[Target, Measurer | None, dict[str, Any]]]:
    """Opens a target: profiles present devices, and keeps their measurer open for the block.

    Yields:
      The target with its costs, without present devices whose outputs are wrong (see
      `open_accurate`), the measurer (None for described devices), and the measuring conditions for
      environment.json, which are filled in when the block ends. A device that computes only some
      operations wrong stays; by its costs it does not support them (`accuracy`).
    """
    net, coarse = target.net, target.net.coarsening.graph
    size = f"{net.graph.num_ops} operations, {net.graph.num_edges} edges"
    if coarse.num_ops < net.graph.num_ops:
        size += f"; coarsened to {coarse.num_ops} and {coarse.num_edges}"
    display.say(f"{net.graph.name}: {size}")
    if net.estimated:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(net.estimated.items()))
        display.say(f"FLOPs estimated from the bytes moved: {counts}")
    display.say("devices: " + "; ".join(target.labels))
    if target.costs is not None:
        display.say("the devices are described, not present: nothing is measured")
        if net.optimum is not None:
            optimum = units.duration(net.optimum.value_s)
            display.say(f"the optimum is known: {optimum}; the table's bounds and gaps are to it")
        yield target, None, {}
        return
    with contextlib.ExitStack() as stack:
        opened, measurer, wrong = stack.enter_context(
            open_accurate(target, settings, display, accept_divisible=True)
        )
        saved = get_profile(settings, opened.net, measurer, workdir, display)
        costs = saved_costs.cost_model(opened.net.graph, saved)
        divisions: tuple[accuracy.Division, ...] = ()
        if wrong:
            # To kernels instead of chains, for decisions about each.
            coarsening = coarsen.coarsen(opened.net.graph, np.asarray(costs.fusion_loss_s) > 0)
            net = opened.net._replace(coarsening=coarsening)
            problem = loading.make_problem(net, costs, opened.names, settings.objective)
        for device, check in wrong.items():
            with display.phase(f"finding the operations that {device.name} computes wrong"):
                time_limit_s = settings.time_limit_s / len(wrong)
                division = accuracy.divide(net, problem, device, check, measurer, time_limit_s)
            display.warn(division.describe())
            divisions += (division,)
        if not all(division.allowed for division in divisions):
            stack.close()
            opened, measurer, _ = stack.enter_context(open_accurate(target, settings, display))
            saved = get_profile(settings, opened.net, measurer, workdir, display)
            costs, divisions = saved_costs.cost_model(opened.net.graph, saved), ()
        if divisions:
            opened = opened._replace(net=net, divisions=divisions)
            compute_s = np.array(costs.compute_s)
            for division in divisions:
                is_kept_off = [name not in division.allowed for name in net.graph.op_names]
                compute_s[is_kept_off, opened.names.index(division.device)] = np.inf
            costs = costs._replace(compute_s=compute_s)
        opened = opened._replace(costs=costs, unsupported=tuple(saved.get("reasons", ())))
        conditions: dict[str, Any] = {}
        yield opened, measurer, conditions
        conditions |= describe_conditions(saved, measurer, display)


def describe_conditions(
    saved: dict[str, Any], measurer: Measurer, display: progress.Display
) -> dict[str, Any]:
    """Returns the conditions of profiling and measuring, and warns if the machine was busy."""
    conditions = {"profiling": saved["conditions"]}
    measuring = measurer.conditions().get("measure")
    if measuring is None:
        return conditions
    if busy := measuring.describe_disturbances():
        display.warn(
            f"the machine was busy while placements were timed ({busy}), so times are unreliable; "
            "run the same command again when the machine is idle"
        )
    return conditions | {"measuring": measuring.to_json()}


@contextlib.contextmanager
def open_accurate(
    target: Target,
    settings: Settings,
    display: progress.Display,
    *,
    accept_divisible: bool = False,
) -> Iterator[tuple[Target, Measurer, Mapping[devices_lib.Device, OutputCheck]]]:
    """Opens a measurer on the present devices, each in a precision whose outputs are right.

    A device without such a precision is left out of the target, unless `accept_divisible` and
    others can run a part of the model instead.

    Yields:
      The target, its measurer, and the wrong devices that stay.
    """
    with contextlib.ExitStack() as stack:
        measurer = stack.enter_context(_open_measurer(target, settings, display))
        with display.phase("checking the devices' outputs"):
            wrong = accuracy.find_wrong(measurer, target.present)
            divisible: dict[devices_lib.Device, OutputCheck] = {}
            # The plain CPU is right in f32, and its name is needed for the rest of the model.
            if accept_divisible and any(d not in wrong or d.name == "CPU" for d in target.present):
                divisible = {d: check for d, check in wrong.items() if d.name != "CPU"}
            replaced = {d: check for d, check in wrong.items() if d not in divisible}
            devices = accuracy.replace_wrong(measurer, target.present, replaced, display.warn)
        if devices != target.present:
            stack.close()
            names, labels = tuple(d.name for d in devices), tuple(d.label for d in devices)
            target = target._replace(present=devices, names=names, labels=labels)
            measurer = stack.enter_context(_open_measurer(target, settings, display))
        yield target, measurer, divisible


@contextlib.contextmanager
def _open_measurer(
    target: Target, settings: Settings, display: progress.Display
) -> Iterator[Measurer]:
    """Opens a measurer on the present devices of this machine or of hosts."""
    model = target.net.model
    inputs = loading.inputs(settings, model)
    if target.hosts is None:
        with LocalMeasurer(model, target.present, inputs=inputs) as local:
            yield local
        return
    print_hosts(target.hosts, display)
    arguments = model, target.present, target.hosts.hosts, inputs, display.warn
    with cluster.ClusterMeasurer(*arguments) as measurer:
        yield measurer
        display.detail("requests answered by hosts: " + str(dict(measurer.answers)))


def get_profile(
    settings: Settings,
    net: loading.Network,
    measurer: Measurer,
    workdir: Path,
    display: progress.Display,
) -> dict[str, Any]:
    """Returns the costs of the devices, JSON-able: saved ones if they apply, else profiles them.

    Saved costs are those of `config.costs`, or profile.json of this run directory if it has the
    same model, machine and devices. A new profile is written there.

    Raises:
      UserError: `config.costs` cannot be read, or has other devices.
    """
    labels = tuple(device.label for device in measurer.devices)
    key = hashlib.sha256(json.dumps([measurer.fingerprint, labels]).encode()).hexdigest()
    is_concurrent = settings.backend == "concurrent"
    if settings.costs:
        saved = saved_costs.read(Path(settings.costs))
        saved_labels = saved_costs.device_labels(saved)
        problem = ""
        if saved_labels != labels:
            problem = f"of {', '.join(labels)}, but of {', '.join(saved_labels)}"
        elif is_concurrent != ("handovers" in saved):
            problem = f"those of backend={settings.backend!r}"
        elif settings.measure_on != "here" and saved.get("key") != key:
            problem = "of this model on the hosts' processor and version of OpenVINO"
        if problem:
            raise UserError(
                f"costs={settings.costs!r} are not {problem}; leave them out to profile the "
                "devices, or set evaluate='simulate'"
            )
        display.detail(f"costs read from {settings.costs}")
        return saved_costs.with_capacities(saved, measurer.devices)
    path = workdir / saved_costs.FILE
    saved = previous = saved_costs.read(path) if path.exists() else {}
    if saved.get("key") != key:
        saved = {}
    if saved and is_concurrent == ("handovers" in saved):
        display.detail(f"profiled before: {path}")
    else:
        saved = _profile(settings, net, measurer, display, saved) | {"key": key}
    # The limits of memory may be others than in the run that profiled.
    saved = saved_costs.with_capacities(saved, measurer.devices)
    if saved != previous:
        runs.write_json(path, saved)
    for transfer in saved["transfers"]:
        display.say(f"transfer {transfers.describe_fit(transfer)}")
    if busy := saved["conditions"]["busy"]:
        display.warn(
            f"the machine was busy while the devices were profiled ({busy}), so "
            f"costs may be too high; when it is idle, remove {path} and run the same command again"
        )
    return saved


def _profile(
    settings: Settings,
    net: loading.Network,
    measurer: Measurer,
    display: progress.Display,
    known: dict[str, Any],
) -> dict[str, Any]:
    """Profiles the devices; `known` has the profile for another backend, or nothing."""
    start_s = time.monotonic()
    devices = measurer.devices
    with display.phase("profiling the devices") as phase:
        phase.note("operations, on each device alone")
        if known:
            profiles = tables.from_json(known)[0]
        else:
            measured = zip(devices, measurer.ask(Profile(devices)), strict=True)
            profiles = tuple(tables.DeviceProfile(d.label, *profile) for d, profile in measured)
        phase.note("tensors, from device to device")
        if settings.backend == "hetero":
            fits = transfer_costs.fit(measurer, measurer.ask(Transfers(devices)))
            saved = tables.to_json(profiles, transfers.make_matrices(fits, len(profiles)))
        else:
            groups = net.members
            is_supported = np.array(
                [[not p.unsupported.intersection(group) for p in profiles] for group in groups]
            )
            submodels, fits = transfer_costs.measure(
                measurer, net.coarsening.graph, groups, is_supported
            )
            if not submodels.groups:
                display.warn(
                    "the model has too many operations to run each of them as a submodel, so the "
                    "costs of cuts are rough"
                )
            saved = tables.to_json(profiles, submodels.transfers)
            saved["handovers"] = tables.submodels_to_json(submodels)
    reasons: list[dict[str, str]] = []
    for device, profile in zip(devices, profiles, strict=True):
        if profile.unsupported:
            try:
                explained = measurer.ask(Reasons(device, profile.unsupported))
            except ChildProcessError as error:  # the placement does not depend on the reasons
                display.warn(f"why {device.label} cannot run some operations is unknown: {error}")
                continue
            reasons += [op._asdict() for op in explained]
    labels = [device.label for device in devices]
    conditions: dict[str, Any] = {"wall_s": time.monotonic() - start_s}
    conditions |= measurer.conditions().get("profile", Conditions()).to_json()
    saved |= {"transfers": transfers.to_json(fits, labels), "conditions": conditions}
    return saved | ({"reasons": reasons} if reasons else {})
