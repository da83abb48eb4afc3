"""Experiment configurations: each file has `get_config() -> ml_collections.ConfigDict`, locked."""
