"""Places a network with a dynamic batch for one size, and runs the deployed folder with others.

    python -m experiments.examples.batch_sizes [NETWORK]

The network is one of the zoo whose first input is a batch of images, by default a small ResNet. It
is placed for a batch of 4 on two devices on one CPU. Each may hold 70% of the weights, so that
the placement needs both. The program compares the outputs for five other batch sizes with
those of plain OpenVINO on the CPU in f32, and ends with exit code 1 if they differ.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import placement
from placement import zoo
from placement.pipeline.python_api import Placed
from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.models import frontend, outputs

NETWORK = "resnet:depth=18,size=64,width=25"
PLACED_BATCH, LARGEST_BATCH = 4, 32
BATCH_SIZES = (1, 2, 7, 16, 32)  # none was profiled or searched
MEMORY_SHARE = 0.7  # of the weights, that each device may hold
SEED = 0


class Run(NamedTuple):
    """An inference with one batch size."""

    batch: int
    error: float  # of the outputs, as in `outputs.Comparison`
    is_correct: bool  # within the tolerance of the devices' precisions


def build(network: str) -> Any:  # openvino.Model
    """Returns a network of the zoo whose batch is dynamic, from 1 to `LARGEST_BATCH`."""
    model = zoo.build(network)
    _, *sizes = model.inputs[0].get_shape()
    model.reshape(f"[1..{LARGEST_BATCH},{','.join(map(str, sizes))}]")
    return model


def place(model: Any, workdir: Path) -> Placed:
    """Places a model for `PLACED_BATCH` on two devices, neither of which holds its weights."""
    port = model.inputs[0]
    sizes = [size.get_length() for size in list(port.get_partial_shape())[1:]]
    weight_bytes = sum(
        op.get_byte_size() for op in model.get_ops() if op.get_type_name() == "Constant"
    )
    return placement.place(
        model,
        devices=f"host:memory={round(MEMORY_SHARE * weight_bytes)}B",
        input_shapes={port.get_any_name(): (PLACED_BATCH, *sizes)},
        workdir=workdir,
        backend="hetero",
        objective="serial",
        method="split_by_memory",
        time_limit_s=2.0,
        measure_s=0.5,
    )


def deploy(placed: Placed, folder: Path) -> None:
    """Deploys a placement into an existing folder.

    `Placed.deploy` would deploy the plain CPU instead, which is faster than two parts of it.
    """
    source = frontend.load(placed.settings.graph)
    artifact.save(
        artifact.Artifact(
            model=frontend.prepare(source, placed.settings.input_shapes),
            affinity=placed.placement,
            segments=(),
            devices=devices.resolve(placed.settings.devices),
            form=artifact.HETERO,
            single_device=None,
            decision="the placement, for a comparison of outputs",
            notes={},
            dynamic=frontend.name_operations(source),
        ),
        folder,
    )


def run(model: Any, folder: Path, batch_sizes: Sequence[int]) -> list[Run]:
    """Runs a deployed folder and plain OpenVINO with each batch size."""
    tolerance = outputs.tolerance(devices.resolve("host"))
    cpu = devices.reference_device()
    plain = devices.open_core([cpu]).compile_model(model, cpu.name, dict(cpu.properties))
    sizes = [size.get_length() for size in list(model.inputs[0].get_partial_shape())[1:]]
    generator, runs = np.random.default_rng(SEED), []
    with placement.load(folder) as network:
        for batch in batch_sizes:
            images = generator.standard_normal((batch, *sizes)).astype(np.float32)
            expected = list(plain([images]).to_tuple())
            error = outputs.compare(expected, network.infer([images])).error
            runs.append(Run(batch, error, error <= tolerance))
    return runs


def main(network: str = NETWORK) -> None:
    """Places, deploys, and prints a line for each batch size."""
    model = build(network)
    with tempfile.TemporaryDirectory() as workdir, tempfile.TemporaryDirectory() as folder:
        placed = place(model, Path(workdir))
        deploy(placed, Path(folder))
        runs = run(model, Path(folder), BATCH_SIZES)
    num_ops = Counter(placed.placement.values())
    counts = ", ".join(f"{count} operations on {name}" for name, count in sorted(num_ops.items()))
    print(f"placed for a batch of {PLACED_BATCH}: {counts}; run with others:")
    for entry in runs:
        verdict = "equal to plain OpenVINO" if entry.is_correct else "wrong"
        print(f"batch {entry.batch:3}: {verdict}, off by {entry.error:.2g} of the outputs' spread")
    if not all(entry.is_correct for entry in runs):
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
