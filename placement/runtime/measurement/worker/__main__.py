"""The process that owns `ov.Core`: it compiles, checks and times candidates, and may die of them.

`python -m placement.runtime.measurement.worker DIRECTORY` answers requests from standard input on
standard output (`Channel`), about the model and inputs that `placement.runtime.measurement.local`
left in DIRECTORY. Meanwhile it writes its current candidate and stage into a small shared file
(`Heartbeat`). The waiting process can then blame a candidate for a crash, and tell a hang from a
long task, without a message per inference.

It does not load JAX, because that would take longer than most measurements.
"""

import collections
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from placement.errors import UserError
from placement.runtime import processors
from placement.runtime.devices import register_devices
from placement.runtime.errors import UnusableError, summarise_error
from placement.runtime.execution.hetero import compile_placement
from placement.runtime.measurement import request as requests
from placement.runtime.measurement.worker import chains, inference, profile
from placement.runtime.measurement.worker.channel import Channel
from placement.runtime.measurement.worker.inference import WARM_UP_INFERENCES
from placement.runtime.measurement.worker.loaded import LoadedModel
from placement.runtime.measurement.worker.trials import Trials
from placement.runtime.models import support
from placement.runtime.models.outputs import OutputCheck


def main(directory: Path) -> None:
    """Answers requests until the parent ends.

    Ctrl-C is left to the parent. If the parent is killed, this process ends too, even while it
    computes: its standard input ends, and Linux kills it even if it hangs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processors.end_with_parent()
    inlet, outlet = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints does not disturb the messages
    channel = Channel(inlet, outlet, close_callback=lambda: os._exit(0))
    send = channel.send
    try:
        loaded = LoadedModel(directory)
        trials = Trials(loaded, send)
        send(("ready", "jax" in sys.modules))
        while True:
            request = channel.receive()
            try:
                is_trial = isinstance(request, requests.Measure)
                content = trials.run(request) if is_trial else answer(request, loaded)
                send(("done", content))
            except (RuntimeError, UserError) as error:
                send(("error", summarise_error(error)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent ended
    except UnusableError as error:
        send(("unusable", str(error)))
    except MemoryError as error:
        send(("exhausted", summarise_error(error)))
    except (RuntimeError, UserError, OSError) as error:  # the model was not loaded
        send(("error", summarise_error(error)))
    except Exception:
        send(("fault", traceback.format_exc()))


def answer(request: requests.Request[Any], loaded: LoadedModel) -> Any:
    """Returns the answer to a request other than `Measure`."""
    core, model, touch = loaded.core, loaded.model, loaded.heartbeat.touch
    loaded.heartbeat.set(-1, "infer")
    register_devices(core, getattr(request, "devices", ()))
    match request:
        case requests.Profile(devices):
            return profile.profile_devices(loaded, devices)
        case requests.Reasons(device, names):
            register_devices(core, [device])
            return support.explain(core, model, device.name, names)
        case requests.OutputErrors(devices):
            errors: list[OutputCheck] = []
            for device in devices:
                checks = []
                for part in profile.divide(core, model, device):
                    touch()
                    # No name keeps the request: the device may hold only one part at a time.
                    checks.append(
                        loaded.compare(loaded.request(part.affinity, part.devices), [device])
                    )
                errors.append(max(checks, key=lambda check: (not check.is_correct, check.error)))
            return errors
        case requests.PlacementError(candidate):
            register_devices(core, candidate.devices)
            infer_request = loaded.request(candidate.affinity, candidate.devices)
            return loaded.compare(infer_request, candidate.used_devices())
        case requests.Transfers(devices):
            return chains.measure_transfers(loaded, devices)
        case requests.CopyTime():
            return chains.copy_s_per_byte()
        case requests.Timeline(devices, segments):
            executor = loaded.executor(segments, devices)

            def infer_spans() -> np.ndarray:
                touch()
                executor.infer()
                timeline_s = np.full((len(executor.split.parts), 2), np.nan)
                for span in executor.requests[0].spans:
                    timeline_s[span.part] = span.begin_s, span.end_s
                return timeline_s - timeline_s.min()

            warm_up_s = [infer_spans().max() for _ in range(WARM_UP_INFERENCES)]
            count = inference.num_repetitions(warm_up_s[-1])
            return np.array([infer_spans() for _ in range(count)])
        case requests.SubmodelTimes(candidate):
            register_devices(core, candidate.devices)
            counted = inference.with_counters(candidate.devices)
            compiled = compile_placement(core, model, candidate.affinity, counted)
            infer_request = inference.create_request(compiled, loaded.inputs)

            def read_nodes() -> dict[int, dict[str, float]]:
                """Returns each submodel's nodes with their mean seconds so far."""
                nodes: dict[int, dict[str, float]] = collections.defaultdict(dict)
                for info in infer_request.get_profiling_info():
                    # HETERO puts the submodel first, as in 'subgraph2: conv_1', but not before the
                    # nodes of a single submodel.
                    prefix, colon, name = info.node_name.partition(": ")
                    if not (colon and prefix.startswith("subgraph")):
                        prefix, name = "subgraph0", info.node_name
                    submodel = int(prefix.removeprefix("subgraph"))
                    nodes[submodel][name] = info.real_time.total_seconds()
                return nodes

            for _ in range(WARM_UP_INFERENCES):
                touch()
                last_s = inference.infer_s(infer_request)
            warm_up_nodes, count = read_nodes(), inference.num_repetitions(last_s)
            for _ in range(count):
                touch()
                infer_request.infer()
            nodes = read_nodes()
            return [
                (
                    tuple(nodes[submodel]),
                    inference.mean_after_warm_up(
                        sum(nodes[submodel].values()), sum(warm_up_nodes[submodel].values()), count
                    ),
                )
                for submodel in sorted(nodes)
            ]
        case requests.HeteroChoice(devices, split_by_memory):
            policy = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"} if split_by_memory else {}
            hetero = "HETERO:" + ",".join(device.name for device in devices)
            return dict(core.query_model(model, hetero, policy))
    raise AssertionError(request)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
