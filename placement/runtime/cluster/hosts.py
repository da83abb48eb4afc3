"""Hosts of a Ray cluster, and which of them are alike. No other module imports ray.

A host is a node of the cluster that has CPUs. Measurements are compared only between hosts that
answer alike when asked what they are (`choose`).
"""

import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from placement.errors import UserError, missing_extra

START_S = 120.0  # what a host may take to start a process and load what it works with
_REACH_S = 5.0


class Host(NamedTuple):
    """A node that can work."""

    name: str
    node: str  # Ray's number of it
    hardware: Mapping[str, Any]  # JSON-able; equal where measurements can be compared


class Choice(NamedTuple):
    """Hosts whose measurements can be compared, and the others."""

    hosts: tuple[Host, ...]  # the driver's own first, then by name
    left_out: tuple[str, ...]  # 'NAME: why'


def survey(describe: Callable[[], Mapping[str, Any]]) -> Choice:
    """Asks every host what it is, and chooses among them as `choose` does.

    Args:
      describe: runs on every host; returns its hardware.

    Raises:
      UserError: Ray is not installed, no cluster runs, or none of its nodes can work.
    """
    ray = connected()
    nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) > 0]
    if not nodes:
        raise UserError(
            "no node of the Ray cluster has CPUs to work with; give it one: "
            "ray start --address=HOST:PORT"
        )
    names = Counter(node["NodeName"] for node in nodes)
    asked, hosts, silent = {}, [], []
    for node in nodes:
        number, name = node["NodeID"], node["NodeName"]
        asked[_task(number, describe)] = Host(
            name if names[name] == 1 else f"{name}/{number[:6]}", number, {}
        )
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=START_S)
    for reference, host in asked.items():
        if reference not in answered:
            silent.append(f"{host.name}: no answer within {START_S:g} s")
            continue
        try:
            hosts.append(host._replace(hardware=ray.get(reference)))
        except ray.exceptions.RayError as error:
            silent.append(f"{host.name}: {_in_short(error)}")
    if not hosts:
        raise UserError(f"no host of the Ray cluster can work: {'; '.join(silent)}")
    chosen = choose(hosts, ray.get_runtime_context().get_node_id())
    return Choice(chosen.hosts, (*chosen.left_out, *silent))


def choose(hosts: Sequence[Host], own: str) -> Choice:
    """Chooses hosts that are alike: as the driver's own, else the largest group, ties by name.

    Args:
      hosts: one at least.
      own: the driver's node, whether or not it is among them.
    """
    ordered = sorted(hosts, key=lambda host: (host.node != own, host.name))
    groups: dict[str, list[Host]] = {}
    for host in ordered:
        groups.setdefault(json.dumps(host.hardware, sort_keys=True), []).append(host)
    chosen = max(groups.values(), key=lambda group: (group[0].node == own, len(group)))
    left_out = [
        f"{host.name}: {_difference(host.hardware, chosen[0].hardware)}"
        for host in ordered
        if host not in chosen
    ]
    return Choice(tuple(chosen), tuple(left_out))


def call(host: Host, function: Callable[..., Any], *args: Any) -> Any:
    """Returns what a function does on a host, beside whatever is done there.

    Raises:
      UserError: the function's own.
      ChildProcessError: the host is lost.
    """
    ray = connected()
    try:
        return ray.get(_task(host.node, function, *args))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise ChildProcessError(f"host {host.name}: {_in_short(error)}") from error


def connected() -> Any:
    """Returns the module ray, connected to the cluster; it says nothing in the terminal.

    Raises:
      UserError: it is not installed, or no cluster runs.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")  # what hosts print, and raylets
    try:
        import ray
    except ImportError as error:
        raise UserError(
            f"{missing_extra('ray', 'distributed')}, or leave measure_on=here"
        ) from error
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError) as error:
        where = "here" if address == "auto" else f"at RAY_ADDRESS={address}"
        raise UserError(
            f"no Ray cluster runs {where}; start one with: ray start --head, or leave "
            "measure_on=here"
        ) from error
    return ray


def whole(node: str) -> dict[str, Any]:
    """Returns Ray's options of what is to run on a node alone."""
    ray = connected()
    (cpus,) = [n["Resources"].get("CPU", 0) for n in ray.nodes() if n["NodeID"] == node]
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": cpus, "scheduling_strategy": strategy}


def _reach(address: str) -> None:
    """Raises an OSError if nothing listens there: Ray would look for it for minutes, and exit."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in address:
        socket.create_connection((host, int(port)), _REACH_S).close()


def _task(node: str, function: Callable[..., Any], *args: Any) -> Any:
    """A reference to what a function returns on a node, busy or not."""
    ray = connected()
    how = whole(node) | {"num_cpus": 0, "max_retries": 0}
    return ray.remote(function).options(**how).remote(*args)


def _in_short(error: Exception) -> str:
    """One line of an error of Ray's."""
    cause = getattr(error, "cause", None)
    return " ".join(str(cause or error).split())[:200]


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In what hardware differs from that chosen, in a few words."""
    keys = [key for key in {**here, **there} if there.get(key) != here.get(key)]
    return "; ".join(
        f"{key} {_as_text(there.get(key))}, not {_as_text(here.get(key))}" for key in keys
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
