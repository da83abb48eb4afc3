"""Timed claims, measured side by side in one run."""
