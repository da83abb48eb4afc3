"""Memory of plug-ins beyond the model: compiled kernels, weights in another layout.

The memory in use on a device is read before the model is compiled and after its first inference.
The growth less the memory that the cost model counts anyway, of constants and tensors, is the
overhead of the plug-in:

    overhead = max(0, growth - constants copied to the device - tensors alive at once)

The CPU plug-in copies no constants that it can use as they are, and devices of the CPU share the
memory of this process. So on the CPU the memory in use is that of the process, and no constants are
subtracted. On Linux it is the anonymous memory, because pages of mapped files come and go, such as
those of the model's constants. Elsewhere it is the unique set size. Memory that was freed is first
returned to the system where the C library can do so (glibc's `malloc_trim`). Elsewhere freed memory
that the allocator keeps makes the growth smaller or larger. On a GPU and an NPU the plug-in reports
the memory in use.
"""

import ctypes
from collections.abc import Collection

import openvino as ov
import psutil

from placement.runtime.devices import Device, is_cpu
from placement.runtime.models import flops, operations

_GPU_STATISTICS = "GPU_MEMORY_STATISTICS"  # bytes by kind of allocation
_NPU_ALLOCATED = "NPU_DEVICE_ALLOC_MEM_SIZE"  # bytes


def read_used_bytes(core: ov.Core, device: Device) -> int | None:
    """Returns the memory in use on a device; None if its plug-in does not report it.

    For a device of the CPU it is the memory of this process.
    """
    if is_cpu(device):
        process = psutil.Process()
        if not psutil.LINUX:
            return int(process.memory_full_info().uss)
        if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            trim(0)
        memory = process.memory_info()
        return int(memory.rss - memory.shared)
    supported = core.get_property(device.name, "SUPPORTED_PROPERTIES")
    if _GPU_STATISTICS in supported:
        return sum(core.get_property(device.name, _GPU_STATISTICS).values())
    if _NPU_ALLOCATED in supported:
        return int(core.get_property(device.name, _NPU_ALLOCATED))
    return None


def compute_overhead(
    model: ov.Model, device: Device, ops: Collection[str], growth_bytes: int
) -> int:
    """Computes the bytes of the plug-in from the growth of the memory in use.

    Args:
      model: with unique friendly names.
      device: the device whose memory grew.
      ops: names of the model's operations on the device. On the CPU all operations count, because
        those of other devices need memory of this process, too.
      growth_bytes: of `read_used_bytes`, from before compiling to after the first inference.
    """
    computed = [name for name in operations.computed_names(model) if is_cpu(device) or name in ops]
    tensor_bytes = peak_tensor_bytes(model, computed)
    constant_bytes = 0
    if not is_cpu(device):
        op_by_name = operations.ops_by_name(model)
        read = operations.find_constants_read(model)
        constants = frozenset[str]().union(*(read[name] for name in computed))
        constant_bytes = sum(op_by_name[name].get_byte_size() for name in constants)
    return max(0, growth_bytes - constant_bytes - tensor_bytes)


def peak_tensor_bytes(model: ov.Model, ops: Collection[str]) -> int:
    """Computes the most bytes of tensors alive at once if a model runs in topological order.

    A tensor is alive from the operation that computes it to the last one that reads it.

    Args:
      model: with unique friendly names. Its dynamic dimensions count as `flops.dims` says.
      ops: names of the operations whose outputs count.
    """
    op_by_name, counted = operations.ops_by_name(model), frozenset(ops)
    position = {name: i for i, name in enumerate(op_by_name)}
    freed_bytes = [0] * len(op_by_name)  # after each operation
    alive_bytes = peak_bytes = 0
    for i, (name, op) in enumerate(op_by_name.items()):
        if name in counted:
            for output in op.outputs():
                num_bytes = flops.num_bytes(output)
                readers = [port.get_node() for port in output.get_target_inputs()]
                last = max([i, *(position[reader.get_friendly_name()] for reader in readers)])
                freed_bytes[last] += num_bytes
                alive_bytes += num_bytes
        peak_bytes = max(peak_bytes, alive_bytes)
        alive_bytes -= freed_bytes[i]
    return peak_bytes
