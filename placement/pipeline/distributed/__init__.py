"""Training in several processes."""
