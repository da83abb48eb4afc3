"""The choice of each device's precision: its own if its outputs are right, else f32.

A device chooses its precision for speed, but some models lose too much accuracy in it. No placement
on such a device can be used, so this is checked before any search.
"""

from collections.abc import Callable, Sequence

from placement.errors import UserError
from placement.runtime.devices import Device, is_reference, replace_with_f32
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import OutputErrors


def choose(
    measurer: Measurer, devices: Sequence[Device], say: Callable[[str], None]
) -> tuple[Device, ...]:
    """Returns the devices, each in a precision in which it computes right outputs.

    A device whose outputs are wrong in its own precision computes in f32 instead. It is left out if
    they are wrong in f32 too.

    Args:
      measurer: measures the model, with the inputs to check.
      devices: the devices that are present.
      say: receives one line about each device that is changed or left out.

    Raises:
      UserError: every device computes wrong outputs.
    """
    devices = tuple(devices)
    suspects = tuple(device for device in devices if not is_reference(device))
    if not suspects:
        return devices
    errors = dict(zip(suspects, measurer.ask(OutputErrors(suspects)), strict=True))
    wrong = [device for device in suspects if not errors[device].is_correct]
    if not wrong:
        return devices
    f32_devices = dict(
        zip(devices, replace_with_f32(devices, [d.name for d in wrong]), strict=True)
    )
    f32_request = OutputErrors(tuple(f32_devices[device] for device in wrong))
    f32_errors = dict(zip(wrong, measurer.ask(f32_request), strict=True))
    for device in wrong:
        problem = errors[device].describe()
        if f32_errors[device].is_correct:
            say(f"{device.label}: {problem}; it computes in f32 instead")
        else:
            error = f32_errors[device].error
            say(f"{device.label} is left out: {problem}, in f32 too ({error:.3g})")
    right = [
        f32_devices[device]
        for device in devices
        if device not in f32_errors or f32_errors[device].is_correct
    ]
    if not right:
        raise UserError(
            f"no device computes right outputs: {errors[wrong[0]].describe()} on {wrong[0].label}; "
            "check them on real inputs: --config.inputs=FILE.npz"
        )
    return replace_with_f32(right, ())
