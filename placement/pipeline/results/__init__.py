"""Results of a run: rows with bounds and measurements, explanations, figures and files."""
