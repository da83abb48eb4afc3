"""Profiling the devices of a target within its limits."""

import pytest

from placement.pipeline import target
from placement.pipeline.console import progress
from placement.pipeline.settings import Settings


class AskedError(Exception):
    """Carries the first request."""


class Recorder:
    devices, fingerprint = (), "model"

    def ask(self, request):
        raise AskedError(request)


@pytest.mark.parametrize(
    ("time_limit_s", "measure_s", "limit_s"),
    [(600.0, 30.0, 600.0), (60.0, 2.0, 4.0), (3.0, 30.0, 3.0)],
)
def test_measure_time_bounds_profiling(tmp_path, time_limit_s, measure_s, limit_s):
    settings = Settings(time_limit_s=time_limit_s, measure_s=measure_s)
    with pytest.raises(AskedError) as error:
        target.get_profile(settings, None, Recorder(), tmp_path, progress.DEFAULT_DISPLAY)
    (request,) = error.value.args
    assert (request.seconds, request.limit_s) == (measure_s / 5, limit_s)
