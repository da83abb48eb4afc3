"""What is made of what methods found: bounds, measurements, rows, explanations, files."""
