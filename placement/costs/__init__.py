"""What operations and crossings cost: tables of costs, from profiles or descriptions."""
