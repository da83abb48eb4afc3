"""What the terminal and the logs are told."""
