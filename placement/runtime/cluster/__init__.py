"""Hosts of a Ray cluster that measure in place of this machine."""
