"""Conversion of messages to the syntax of the command in use.

Messages are written for `python -m experiments.main` ("give --config.devices=host"). The installed
command and Python rewrite them with these functions.
"""

import re

# A value ends before punctuation that closes a clause: "give --config.devices=CPU,GPU.0, or ...".
_SETTING = re.compile(r"--config\.(\w+)(?:=('[^']*'|\S+?(?=[.,;:)]*(?:\s|$))))?")
_TASK = re.compile(r"--task=(\w+)")
# The tasks that are subcommands of the installed command.
COMMANDS = ("advise", "compare", "deploy", "place", "profile", "report")
# Options whose names differ from their settings': the unit is in the help.
OPTION_NAMES = {"time_limit_s": "time-limit", "measure_s": "measure-time"}


def setting_option(setting: str) -> str:
    """Returns the option of the installed command for a setting, such as '--time-limit'."""
    return "--" + OPTION_NAMES.get(setting, setting.replace("_", "-"))


def to_command(text: str) -> str:
    """Rewrites a message for the installed command: '--devices=host', 'placement compare'."""

    def setting(match: re.Match[str]) -> str:
        option, value = setting_option(match[1]), match[2]
        if value in ("True", "False"):  # a flag, which takes no value
            return option if value == "True" else option.replace("--", "--no-", 1)
        return option + (f"={value}" if value else "")

    def task(match: re.Match[str]) -> str:
        if match[1] in COMMANDS:
            return f"placement {match[1]}"
        return f"python -m experiments.main {match[0]}"  # needs a clone of the repository

    return _TASK.sub(task, _SETTING.sub(setting, text))


def to_python(text: str) -> str:
    """Rewrites a message for Python: "devices='host'", 'placement.place'."""

    def setting(match: re.Match[str]) -> str:
        name, value = match.groups()
        if not value:
            return name
        value = value.strip("'")
        is_literal = value in ("True", "False") or re.fullmatch(r"-?\d+(\.\d+)?", value)
        return f"{name}={value if is_literal else repr(value)}"

    text = _SETTING.sub(setting, text).replace("--task=place", "placement.place")
    return text.replace("--task=compare", "placement.compare")
