"""Placement as an environment for reinforcement learning: pure `reset` and `step`.

The style is that of gymnax (Lange 2022) and jumanji (Bonnet et al. 2024): functions of arrays that
jit, vmap and scan take. A problem is a pytree, `arrays.ProblemArrays`, so that a batch may hold
several problems of one bucket. The environment `place_next` places the next operation in order of
priority, until all are placed.

Latencies in rewards are in units of the problem's best single device.
"""
