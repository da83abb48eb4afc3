"""The configuration that all others start from: every key of `Settings` with its default.

A configuration file starts from `base()`, changes what it needs, and locks the result, so that a
misspelt key on the command line is refused.
"""

from ml_collections import ConfigDict

from placement.pipeline.settings import Settings


def base() -> ConfigDict:
    """Returns the defaults, locked."""
    return ConfigDict(Settings().to_dict()).lock()
