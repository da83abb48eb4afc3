"""Places, deploys and loads a model where Python lacks the modules and functions of POSIX.

    python -m tests.pipeline.without_posix MODEL WORKDIR

The work is done in a process that the start method spawn makes. Lines for the test begin with '#'.
"""

import multiprocessing
import os
import sys

# They have an implementation for each system. Here they take the one of this system.
import filelock  # noqa: F401
import psutil  # noqa: F401

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios")
NAMES = ("fork", "forkpty", "geteuid", "getuid", "getloadavg", "mkfifo", "killpg", "setsid")
NAMES += ("O_NOFOLLOW", "register_at_fork", "waitid")
NAMES += tuple(name for name in dir(os) if name.startswith(("sched_", "SCHED_")))
_is_directory = os.path.isdir

for _name in MODULES:
    sys.modules[_name] = None  # type: ignore[assignment]  # importing it raises ImportError
for _name in NAMES:
    if hasattr(os, _name):
        delattr(os, _name)
# Nor are there files that describe the threads of a process.
os.path.isdir = lambda path: not str(path).startswith("/proc/") and _is_directory(path)
if "placement.runtime.measurement.worker" in sys.orig_argv:
    print("# blocked in the worker", file=sys.stderr)


def run(model: str, workdir: str) -> None:
    """Prints the devices of the placement and its output's difference from plain OpenVINO's."""
    import numpy as np
    import openvino as ov

    import placement

    placed = placement.place(
        model, devices="host", workdir=workdir, method="heft", time_limit_s=20.0, measure_s=0.3
    )
    placed.deploy(f"{workdir}/copy")
    plain = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    x = np.random.default_rng(0).standard_normal(tuple(plain.input(0).shape)).astype(np.float32)
    expected = plain([x])[0]
    with placement.load(f"{workdir}/copy") as network:
        print("# error", np.abs(network.infer([x])[0] - expected).max() / expected.std())
    print("# devices", *placed.summary["devices"])
    print("# imported", *(name for name in MODULES if sys.modules[name] is not None))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    process = multiprocessing.Process(target=run, args=tuple(sys.argv[1:]))
    process.start()
    process.join()
    sys.exit(process.exitcode)
