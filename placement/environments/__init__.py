"""Placement as an environment for reinforcement learning: pure `reset` and `step`.

The style is that of gymnax (Lange 2022) and jumanji (Bonnet et al. 2024): functions of arrays that
jit, vmap and scan take. A problem is a pytree, `arrays.ProblemArrays`, so that a batch may hold
several problems of one bucket. There are two environments, which differ in their actions:

- `place_next`: place the next operation in order of priority, until all are placed;
- `move_group`: move a group of operations of a complete placement to a device.

Latencies in rewards are in units of the problem's best single device.
"""
