"""Device placement of neural networks on OpenVINO devices, as pure functions in JAX."""

__version__ = "0.1.0"
