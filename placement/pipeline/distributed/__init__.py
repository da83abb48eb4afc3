"""Several processes that learn as one, and hosts that measure."""
