"""The choice of each device's precision: its own if its outputs are right, else f32.

A device chooses its precision for speed, but some models lose too much accuracy in it. No placement
of the whole model on such a device can be used, so this is checked before any search.
"""

from collections.abc import Callable, Mapping, Sequence

from placement.errors import UserError
from placement.runtime.devices import Device, is_reference, replace_with_f32
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import OutputErrors
from placement.runtime.models.outputs import OutputCheck


def find_wrong(measurer: Measurer, devices: Sequence[Device]) -> dict[Device, OutputCheck]:
    """Returns the devices on which the model's outputs are wrong, with their errors."""
    suspects = tuple(device for device in devices if not is_reference(device))
    if not suspects:
        return {}
    checks = zip(suspects, measurer.ask(OutputErrors(suspects)), strict=True)
    return {device: check for device, check in checks if not check.is_correct}


def replace_wrong(
    measurer: Measurer,
    devices: Sequence[Device],
    wrong: Mapping[Device, OutputCheck],
    say: Callable[[str], None],
) -> tuple[Device, ...]:
    """Returns the devices, with those that are wrong in their own precision in f32 instead.

    A device is left out if it is wrong in f32 too, or if another device is the same in f32.

    Args:
      measurer: measures the model, with the inputs to check.
      devices: the devices that are present.
      wrong: the devices to replace, from `find_wrong`.
      say: receives one line about each device that is changed or left out.

    Raises:
      UserError: every device computes wrong outputs.
    """
    if not wrong:
        return tuple(devices)
    f32_devices = dict(
        zip(devices, replace_with_f32(devices, [d.name for d in wrong]), strict=True)
    )
    f32_request = OutputErrors(tuple(f32_devices[device] for device in wrong))
    f32_checks = dict(zip(wrong, measurer.ask(f32_request), strict=True))
    right = []
    for device in devices:
        if device not in wrong:
            right.append(f32_devices[device])
            continue
        problem, f32_device = wrong[device].describe(), f32_devices[device]
        equal = [d for d in devices if d not in wrong and _is_same_cpu(d, f32_device)]
        if equal:
            say(f"{device.label} is left out: {problem}; {equal[0].name} computes in f32")
        elif f32_checks[device].is_correct:
            say(f"{device.label}: {problem}; it computes in f32 instead")
            right.append(f32_device)
        else:
            error = f32_checks[device].error
            say(f"{device.label} is left out: {problem}, in f32 too ({error:.3g})")
    if not right:
        device, check = next(iter(wrong.items()))
        raise UserError(
            f"no device computes right outputs: {check.describe()} on {device.label}; "
            "check them on real inputs: inputs='FILE.npz'"
        )
    return replace_with_f32(right, ())


def _is_same_cpu(first: Device, second: Device) -> bool:
    """Returns whether two host devices are the same cores in the same precision."""
    return (
        first.host
        and second.host
        and (first.core, first.cores, first.properties)
        == (second.core, second.cores, second.properties)
    )
