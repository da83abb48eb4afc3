"""Placements by memory alone: the ways in which models are usually split over devices.

Both take the co-location classes in topological order and the devices in their order, and look at
no time. So a device has operations that follow each other, and few tensors cross.

`fill_in_order` fills each device until its memory is full, as a user does who moves the layers that
do not fit to the next device. The limits also count tensors while they are alive, which depends on
the schedule. So it fills shares of the memory, 100% to 50% in steps of 1%, and returns the largest
share that fits. `split_by_memory` gives each device a part of the model in proportion to its
memory, as OpenVINO's PIPELINE_PARALLEL does. A device without a limit counts as one that holds the
whole model, and as the largest; so devices without limits get equal parts.
"""

import numpy as np

from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_SHARES = np.linspace(1.0, 0.5, 51)


def fill_in_order(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Operations in topological order on the first device until its memory is full, then the next.

    A class that the device does not support goes to the first device that supports it and has room,
    and leaves the device open.
    """
    del seed, limits
    classes, num_devices = problem.classes, len(problem.devices)
    capacity_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)
    placements = np.zeros((len(_SHARES), len(classes.first_ops)), np.int32)
    for row, share in zip(placements, _SHARES, strict=True):
        free_bytes, device = share * capacity_bytes, 0
        for number in problem.class_order:
            class_bytes = classes.memory_bytes[number]
            while device + 1 < num_devices and 0 < class_bytes > free_bytes[device]:
                device += 1
            chosen = device
            if not classes.allowed[number, device]:
                has_room = classes.allowed[number] & (class_bytes <= free_bytes)
                chosen = int(np.argmax(has_room if has_room.any() else classes.allowed[number]))
            row[number] = chosen
            free_bytes[problem.shares_memory[chosen]] -= class_bytes
    placements = placements[:, classes.ids]
    fits = np.isfinite(np.asarray(problem.evaluate(placements)))
    return Solution(placements[int(np.argmax(fits))], evaluations=len(placements))


def split_by_memory(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Contiguous parts in topological order, in proportion to the devices' memory.

    A class that its device does not support goes to the first one that does.
    """
    del seed, limits
    classes = problem.classes
    class_bytes = classes.memory_bytes[problem.class_order]
    total_bytes = class_bytes.sum()
    # Parts of one accelerator have their memory together.
    sharing = problem.shares_memory.sum(axis=1)
    capacity_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)
    is_limited = np.isfinite(capacity_bytes)
    largest_bytes = max(total_bytes, capacity_bytes[is_limited].max(initial=0.0))
    ends = np.cumsum(np.where(is_limited, capacity_bytes, largest_bytes) / sharing)
    ends = ends / ends[-1] if ends[-1] else np.linspace(0, 1, len(ends) + 1)[1:]
    # The middle of each class decides; without any bytes, all are on the first device.
    middle = (np.cumsum(class_bytes) - class_bytes / 2) / (total_bytes or 1.0)
    placement = np.zeros(len(class_bytes), np.int32)
    placement[problem.class_order] = np.searchsorted(ends[:-1], middle, side="right")
    is_allowed = classes.allowed[np.arange(len(placement)), placement]
    placement = np.where(is_allowed, placement, classes.allowed.argmax(axis=1))
    return Solution(placement[classes.ids].astype(np.int32), evaluations=1)
