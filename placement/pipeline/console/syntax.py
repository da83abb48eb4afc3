"""How users write settings and tasks.

Messages are written for `python -m experiments.main` ("give --config.devices=host"). The installed
command and Python rewrite them with the functions here.
"""

import re

# A value ends before punctuation that closes a clause: "give --config.devices=CPU,GPU.0, or ...".
_SETTING = re.compile(r"--config\.(\w+)(?:=('[^']*'|\S+?(?=[.,;:)]*(?:\s|$))))?")
_TASK = re.compile(r"--task=(\w+)")
# Options whose names differ from their settings': the unit is in the help.
OPTION_NAMES = {"time_limit_s": "time-limit", "measure_s": "measure-time"}


def option(setting: str) -> str:
    """Returns the option of the installed command for a setting, such as '--time-limit'."""
    return "--" + OPTION_NAMES.get(setting, setting.replace("_", "-"))


def for_command(text: str) -> str:
    """Rewrites a message for the installed command: '--devices=host', 'placement compare'."""
    text = _SETTING.sub(lambda m: option(m[1]) + (f"={m[2]}" if m[2] else ""), text)
    return _TASK.sub(r"placement \1", text)


def for_python(text: str) -> str:
    """Rewrites a message for Python: "devices='host'", 'placement.compare'."""

    def argument(match: re.Match[str]) -> str:
        return match[1] + (f"={match[2].strip(chr(39))!r}" if match[2] else "")

    return _TASK.sub(r"placement.\1", _SETTING.sub(argument, text))
