"""Output to the terminal and to logs."""
