"""Decision diagrams for `makespan`: all states of partial placements, operation by operation."""
