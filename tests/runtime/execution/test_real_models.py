"""Models of the shapes that real ones have, placed at random on two devices and run.

Both devices compute in f32, so that what is checked is the placement and not a precision.
"""

import numpy as np
import openvino as ov
import pytest

from placement.runtime import devices
from placement.runtime.measurement import local
from placement.runtime.measurement.request import Candidate, Failure, Measure, Measurement, Profile
from placement.runtime.models import extract, frontend, outputs
from tests.runtime.sample_models import MODELS

HOST = devices.resolve("host:f32,f32")
NAMES = [device.name for device in HOST]
STATEFUL = ("states", "cache")
SAMPLE = (*STATEFUL, "wake_word", "branches", "strings", "int8")


def prepared(name: str) -> ov.Model:
    return frontend.prepare(MODELS[name]())


def random_placements(graph) -> list[np.ndarray]:
    """A dozen operations picked apart, then a cut in the middle; what is co-located together.

    Of a large graph, which takes long to compile, the first alone.
    """
    generator, size = np.random.default_rng(0), graph.num_ops
    cut = np.arange(size) * 2 // size
    picked = generator.random(size) < min(0.5, 12 / size)
    placements = [picked.astype(int), cut] if size < 100 else [picked.astype(int)]
    _, first_ops, decision = np.unique(graph.colocation, return_index=True, return_inverse=True)
    return [placement[first_ops][decision] for placement in placements]


def candidate(graph, placement: np.ndarray) -> Candidate:
    pairs = zip(graph.op_names, placement, strict=True)
    return Candidate({name: NAMES[device] for name, device in pairs}, HOST)


@pytest.mark.parametrize("name", SAMPLE)
def test_random_placements_compute_the_same(name):
    model = prepared(name)
    graph = extract.op_graph(model, name=name, constants=False).graph
    placements = [np.zeros(graph.num_ops, int), *random_placements(graph)]
    candidates = [candidate(graph, placement) for placement in placements]
    with local.LocalMeasurer(model, HOST) as measurer:
        found = measurer.ask(Measure(candidates, min_rounds=6, time_limit_s=0.0))
        profiles = measurer.ask(Profile(HOST[:1]))
    refused = [outcome for outcome in found if isinstance(outcome, Failure)]
    for outcome in refused:  # a variable on a cycle: no placement that HETERO could run
        assert name in STATEFUL
        assert outcome.stage == "compile"
        assert "depends on itself" in outcome.cause
    ran = [outcome for outcome in found if isinstance(outcome, Measurement)]
    assert isinstance(found[0], Measurement)
    assert found[0].submodels == 1
    assert len(ran) > 1
    assert all(outcome.submodels > 1 for outcome in ran[1:])
    quantised = outputs.is_quantised(model)
    assert quantised == (name == "int8")
    assert max(outcome.output_error for outcome in ran) <= (0.1 if quantised else 1e-3)
    assert all(profile.latency_s > 0 for profile in profiles)
    for profile in profiles:
        listed = {op for names, _ in profile.kernels for op in names}
        assert listed <= set(graph.op_names)
        assert len(listed) > graph.num_ops / 2
        assert sum(seconds for _, seconds in profile.kernels) > 0
