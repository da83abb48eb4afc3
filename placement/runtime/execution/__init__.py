"""Execution of a placement: under HETERO, or with all devices working at the same time."""
