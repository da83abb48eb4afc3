"""Hosts of a cluster that measure in this machine's place."""
