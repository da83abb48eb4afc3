"""Run directories, tables, figures and traces."""
