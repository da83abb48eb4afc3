import numpy as np
import pytest

from placement.runtime.measurement import local
from placement.runtime.measurement.request import Candidate, Measure, SubmodelTimes
from tests.runtime import small
from tests.runtime.deployment.test_deploy import HOST, A, B

pytestmark = pytest.mark.alone


def test_submodels_are_in_turn_and_take_about_what_the_inference_does():
    model = small.convolutions(channels=32, size=28, length=6)
    with local.LocalMeasurer(model, HOST) as measurer:
        split = Candidate(small.everywhere(model, A, conv_2=B, relu_2=B), HOST)
        (measured,) = measurer.ask(Measure([split], min_rounds=20, time_limit_s=0.0))
        found = measurer.ask(SubmodelTimes(split, inferences=20))
        alone = measurer.ask(SubmodelTimes(Candidate(None, HOST[:1]), inferences=20))
    convolutions = {f"conv_{i}" for i in range(6)}
    assert [convolutions.intersection(names) for names, _ in found] == [
        *({"conv_0", "conv_1"}, {"conv_2"}, {"conv_3", "conv_4", "conv_5"}),
    ]
    seconds = np.array([taken_s for _, taken_s in found])
    assert (seconds > 0).all()
    assert 0.4 * measured.latency.median < seconds.sum() < 1.3 * measured.latency.median
    assert len(alone) == 1
    assert convolutions <= set(alone[0][0])
