"""The base of all configurations: every key of `Settings` with its default.

A configuration file changes some keys of `base()`. The result is locked, so that a misspelt key on
the command line is refused.
"""

from ml_collections import ConfigDict

from placement.pipeline.settings import Settings


def base() -> ConfigDict:
    """Returns the defaults, locked."""
    return ConfigDict(Settings().to_dict()).lock()
