"""The measurement boundary: the only code that touches devices and clocks."""
