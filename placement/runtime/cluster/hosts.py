"""The hosts of a Ray cluster, and which of them are alike. No other module imports ray.

A host is a node of the cluster that has CPUs. Measurements are compared only between hosts that
describe their hardware in the same way (`choose`).
"""

import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from placement.errors import UserError, missing_extra

START_S = 120.0  # limit on a host's start of a process with all that it loads
_CONNECT_S = 5.0


class Host(NamedTuple):
    """A node that can work."""

    name: str
    node: str  # Ray's ID of the node
    hardware: Mapping[str, Any]  # JSON-able; equal if measurements can be compared


class Choice(NamedTuple):
    """The hosts whose measurements can be compared, and the other hosts."""

    hosts: tuple[Host, ...]  # the driver's own first, then by name
    left_out: tuple[str, ...]  # 'NAME: reason'


def survey(describe: Callable[[], Mapping[str, Any]]) -> Choice:
    """Asks every host for its hardware and chooses among them as `choose` does.

    Args:
      describe: runs on every host and returns its hardware.

    Raises:
      UserError: Ray is not installed, no cluster runs, or no node can work.
    """
    ray = connect()
    nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) > 0]
    if not nodes:
        raise UserError(
            "no node of the Ray cluster has CPUs to work with; give it one: "
            "ray start --address=HOST:PORT"
        )
    name_counts = Counter(node["NodeName"] for node in nodes)
    asked_hosts, hosts, silent = {}, [], []
    for node in nodes:
        node_id, name = node["NodeID"], node["NodeName"]
        asked_hosts[_start_task(node_id, describe)] = Host(
            name if name_counts[name] == 1 else f"{name}/{node_id[:6]}", node_id, {}
        )
    answered, _ = ray.wait(list(asked_hosts), num_returns=len(asked_hosts), timeout=START_S)
    for reference, host in asked_hosts.items():
        if reference not in answered:
            silent.append(f"{host.name}: no answer within {START_S:g} s")
            continue
        try:
            hosts.append(host._replace(hardware=ray.get(reference)))
        except ray.exceptions.RayError as error:
            silent.append(f"{host.name}: {_summarize(error)}")
    if not hosts:
        raise UserError(f"no host of the Ray cluster can work: {'; '.join(silent)}")
    choice = choose(hosts, ray.get_runtime_context().get_node_id())
    return Choice(choice.hosts, (*choice.left_out, *silent))


def choose(hosts: Sequence[Host], driver_node: str) -> Choice:
    """Chooses the hosts that are like the driver's own, else the largest group of like hosts.

    Among groups of the same size, the one with the first name wins.

    Args:
      hosts: at least one.
      driver_node: the node of the driver, which need not be among the hosts.
    """
    ordered = sorted(hosts, key=lambda host: (host.node != driver_node, host.name))
    groups: dict[str, list[Host]] = {}
    for host in ordered:
        groups.setdefault(json.dumps(host.hardware, sort_keys=True), []).append(host)
    selected = max(groups.values(), key=lambda group: (group[0].node == driver_node, len(group)))
    hardware = selected[0].hardware

    def show(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True)

    left_out = []
    for host in ordered:
        if host in selected:
            continue
        differences = [
            f"{key} {show(host.hardware.get(key))}, not {show(hardware.get(key))}"
            for key in {**hardware, **host.hardware}
            if host.hardware.get(key) != hardware.get(key)
        ]
        left_out.append(f"{host.name}: {'; '.join(differences)}")
    return Choice(tuple(selected), tuple(left_out))


def call(host: Host, function: Callable[..., Any], *args: Any) -> Any:
    """Runs a function on a host, even if the host is busy, and returns its result.

    Raises:
      UserError: the function's own.
      ChildProcessError: the host is lost.
    """
    ray = connect()
    try:
        return ray.get(_start_task(host.node, function, *args))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise ChildProcessError(f"host {host.name}: {_summarize(error)}") from error


def connect() -> Any:
    """Returns the module ray, connected to the cluster; Ray prints nothing to the terminal.

    Raises:
      UserError: Ray is not installed, or no cluster runs.
    """
    # Ray then does not collapse repeated lines of the hosts, which is itself a message.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
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
        host, _, port = address.rpartition(":")
        if host and port.isdecimal() and "/" not in address:
            # Without a cluster at the address, `ray.init` would try for minutes and then exit. This
            # raises an OSError at once.
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, RuntimeError) as error:
        location = "here" if address == "auto" else f"at RAY_ADDRESS={address}"
        raise UserError(
            f"no Ray cluster runs {location}; start one with: ray start --head, or leave "
            "measure_on=here"
        ) from error
    return ray


def exclusive_options(node: str) -> dict[str, Any]:
    """Returns Ray's options for a process that takes all CPUs of a node, so that it runs alone."""
    ray = connect()
    (num_cpus,) = [n["Resources"].get("CPU", 0) for n in ray.nodes() if n["NodeID"] == node]
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": num_cpus, "scheduling_strategy": strategy}


def _start_task(node: str, function: Callable[..., Any], *args: Any) -> Any:
    """Starts a function on a node, busy or not; returns a reference to its result."""
    ray = connect()
    options = exclusive_options(node) | {"num_cpus": 0, "max_retries": 0}
    return ray.remote(function).options(**options).remote(*args)


def _summarize(error: Exception) -> str:
    """Returns one line about an error of Ray's."""
    cause = getattr(error, "cause", None)
    return " ".join(str(cause or error).split())[:200]
