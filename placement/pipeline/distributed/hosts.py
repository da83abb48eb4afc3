"""Hosts of a Ray cluster that measure instead of this machine (`--config.measure_on=ray`)."""

from typing import Any

import placement
from placement.pipeline.console import progress
from placement.runtime import devices as devices_lib
from placement.runtime.cluster import hosts


def describe_host() -> dict[str, Any]:
    """Returns the properties that hosts must share for comparable measurements; JSON-able."""
    return devices_lib.describe_hardware() | {"placement": placement.__version__}


def find_hosts() -> hosts.Choice:
    """Finds the largest group of equal hosts in the cluster.

    Raises:
      UserError: there is no cluster, or none of its hosts can work.
    """
    return hosts.survey(describe_host)


def describe_choice(choice: hosts.Choice | None) -> dict[str, Any]:
    """Returns the hosts for environment.json: names, hardware, and why others are left out."""
    if choice is None:
        return {}
    used = [host.name for host in choice.hosts]
    hardware = choice.hosts[0].hardware
    return {"hosts": {"used": used, "hardware": hardware, "left_out": choice.left_out}}


def print_hosts(choice: hosts.Choice, display: progress.Display) -> None:
    """Prints the hosts that measure, and warns about those that are left out."""
    display.say("hosts: " + ", ".join(host.name for host in choice.hosts))
    for line in choice.left_out:
        display.warn(f"host left out: {line}")
