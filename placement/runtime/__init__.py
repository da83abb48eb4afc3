"""The measurement boundary: the only code that uses devices and clocks."""
