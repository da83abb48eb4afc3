"""The memory of devices, as far as placements show it that ran and that did not.

A placement that fails because memory runs out shows that some device has less than the placement
needs on it; a placement that runs shows that every device has at least what it needs. The limit of
one device is lowered after each failure, so that a search that goes on avoids this placement and
all that need as much.
"""

import chex
import numpy as np

_DECREASE = 0.02  # of a learned limit, below the memory that was too much


def learn_capacity(
    capacity_bytes: np.ndarray,
    failed_bytes: np.ndarray,
    succeeded_bytes: np.ndarray,
    failed_device: int | None = None,
) -> np.ndarray | None:
    """Lowers the limit of the device that a placement has probably exhausted.

    A device that held as much in a placement that ran is not the cause. Of the others it is the one
    that the error names, else the one of whose limit the placement needs the largest share; without
    any limit the one with the most memory.

    Args:
      capacity_bytes: float [D], the limits so far; inf where there is none.
      failed_bytes: float [D], the memory that the failed placement needs (`Instance.peak_bytes`).
      succeeded_bytes: float [K, D], the memory of placements that ran.
      failed_device: the device that the error names, None if it names none.

    Returns:
      The new limits, float64 [D]; None if no device can be the cause.
    """
    chex.assert_rank([capacity_bytes, failed_bytes, succeeded_bytes], [1, 1, 2])
    chex.assert_type([capacity_bytes, failed_bytes, succeeded_bytes], float)
    is_possible = failed_bytes > np.max(succeeded_bytes, axis=0, initial=0.0)
    if failed_device is not None and is_possible[failed_device]:
        device = failed_device
    elif is_possible.any():
        shares = np.where(is_possible, failed_bytes / capacity_bytes, -1.0)
        # The last key counts first.
        device = int(np.lexsort((np.where(is_possible, failed_bytes, 0.0), shares))[-1])
    else:
        return None
    learned = np.array(capacity_bytes, np.float64)
    learned[device] = min(learned[device], (1 - _DECREASE) * failed_bytes[device])
    return learned
