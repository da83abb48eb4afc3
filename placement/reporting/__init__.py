"""Run directories, tables and plots."""
