"""How a placement runs on devices: under HETERO, or all devices at once."""
