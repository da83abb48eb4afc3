"""Cost models of operations and transfers: measured, described or read from files."""
