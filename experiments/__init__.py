"""Experiments: from flags and configurations to run directories."""
