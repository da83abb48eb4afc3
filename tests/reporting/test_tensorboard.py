"""Events, read back from the files."""

import math
import subprocess
import sys

import numpy as np
import pytest

from placement.reporting import tensorboard
from tests.reporting import events


def test_events_have_scalars_and_histograms(tmp_path):
    seconds = np.array([1e-3, 2e-3, 2e-3, 4e-3], np.float32)
    written = tensorboard.Events(tmp_path / "run", first_evaluation=0)
    written.add(64, {"m/best_s": 0.5, "m/mean_s": math.inf, "m/latency_s": seconds})
    written.add(128, {"m/best_s": 0.25, "m/latency_s": np.empty(0)})
    first, second = events.read(tmp_path / "run")
    assert (first.step, second.step) == (64, 128)
    assert [value.tag for value in first.summary.value] == ["m/best_s", "m/latency_s"]
    assert [value.tag for value in second.summary.value] == ["m/best_s"]
    assert events.scalars(tmp_path / "run", "m/best_s") == [(64, 0.5), (128, 0.25)]
    drawn = first.summary.value[1].histo
    assert (drawn.num, drawn.min, drawn.max) == (4, seconds.min(), seconds.max())
    assert drawn.sum == pytest.approx(9e-3)
    assert sum(drawn.bucket) == 4
    middle = [limit for limit, n in zip(drawn.bucket_limit, drawn.bucket, strict=True) if n == 2]
    assert middle == [pytest.approx(2e-3, rel=0.1)]


def test_resumed_search_replaces_events(tmp_path):
    for after, steps in ((0, (10, 20, 30)), (20, (30, 40))):
        written = tensorboard.Events(tmp_path, first_evaluation=after)
        for step in steps:
            written.add(step, {"m/best_s": float(after)})
    assert events.scalars(tmp_path, "m/best_s") == [(10, 0), (20, 0), (30, 20), (40, 20)]
    (tmp_path / "file").write_text("where the directory should be")
    with pytest.raises(FileExistsError) as caught:
        tensorboard.Events(tmp_path / "file", first_evaluation=0)
    assert caught.value.filename == str(tmp_path / "file")


def test_import_leaves_pytorch_out():
    """tensorboardX alone would, which takes seconds."""
    code = "import sys; from placement.reporting import tensorboard; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
