"""Deployed folders of small models on the host devices."""

import itertools
from pathlib import Path

import numpy as np
import openvino as ov

from placement.runtime import devices
from placement.runtime.deployment import artifact
from placement.runtime.deployment.artifact import CONCURRENT, HETERO, SINGLE
from placement.runtime.execution.split import Segment
from placement.runtime.models import frontend
from tests.runtime import small

HOST = devices.resolve("host")
A, B = (device.name for device in HOST)
FORMS = (SINGLE, HETERO, CONCURRENT)
INPUT = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)


def make(model: ov.Model, form: str, *, cpus=HOST, dynamic=None, **others: str):
    """Returns the artifact of a model in a form.

    All operations but `others` are on the first device; in form 'single' all are on the second.
    """
    model = frontend.prepare(model)
    if form == SINGLE:
        return artifact.Artifact(model, form, cpus[-1:], dynamic=dynamic)
    affinity = small.everywhere(model, cpus[0].name, **others)
    ops = [name for op in model.get_ordered_ops() if (name := op.get_friendly_name()) in affinity]
    segments = tuple(Segment(d, tuple(names)) for d, names in itertools.groupby(ops, affinity.get))
    return artifact.Artifact(
        model, form, cpus, affinity, segments if form == CONCURRENT else (), dynamic
    )


def save(folder: Path, *arguments, **keys) -> Path:
    """Writes what `make` returns into a folder."""
    folder.mkdir(exist_ok=True)
    artifact.save(make(*arguments, **keys), folder)
    return folder
