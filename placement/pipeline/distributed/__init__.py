"""Training in several processes, and hosts of a cluster that measure."""
