"""A run, step by step: settings, model and devices, costs, searches, measurements, results."""
