"""The precision that each device is to compute in: its own where its outputs are right in it.

A device chooses its precision for speed, and some models lose too much in it. Nothing that is then
placed on it can be used, so that it is found out before anything is searched.
"""

from collections.abc import Callable, Sequence

from placement.errors import UserError
from placement.runtime.devices import Device, in_f32, is_reference
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import OutputErrors


def choose(
    measurer: Measurer, devices: Sequence[Device], say: Callable[[str], None]
) -> tuple[Device, ...]:
    """The devices, in f32 those that compute wrong outputs otherwise, without those wrong in f32.

    Args:
      measurer: of the model, with the inputs to check.
      devices: present.
      say: told in one line of each device that is not as it was given.

    Raises:
      UserError: all compute wrong outputs.
    """
    devices = tuple(devices)
    asked = tuple(device for device in devices if not is_reference(device))
    first = dict(zip(asked, measurer.ask(OutputErrors(asked)), strict=True)) if asked else {}
    wrong = [device for device in asked if not first[device].right]
    if not wrong:
        return devices
    instead = dict(zip(devices, in_f32(devices, [d.name for d in wrong]), strict=True))
    again = OutputErrors(tuple(instead[device] for device in wrong))
    second = dict(zip(wrong, measurer.ask(again), strict=True))
    for device in wrong:
        off, then = first[device].describe(), second[device]
        if then.right:
            say(f"{device.label}: {off}; it computes in f32 instead")
        else:
            say(f"{device.label} is left out: {off}, in f32 too ({then.error:.3g})")
    kept = [instead[device] for device in devices if device not in second or second[device].right]
    if not kept:
        raise UserError(
            f"no device computes right outputs: {first[wrong[0]].describe()} on {wrong[0].label}; "
            "check them on real ones: --config.inputs=FILE.npz"
        )
    return in_f32(kept, ())
