"""Integer and constraint programs, on HiGHS and CP-SAT."""
