"""Decision diagrams of `makespan`: what partial placements lead to, operation by operation."""
