"""What operations and transfers cost: tables of costs, from profiles or descriptions."""
