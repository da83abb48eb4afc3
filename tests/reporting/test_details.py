import dataclasses
import json

import numpy as np
import pytest

from placement.errors import UserError
from placement.reporting import details
from tests.reporting import drawn


def _equal(one, other):
    if dataclasses.is_dataclass(one):
        fields = dataclasses.fields(one)
        return all(_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


@pytest.mark.parametrize("told", [drawn.diamond(), drawn.diamond(measured=False), drawn.large(60)])
def test_details_are_read_as_they_were_written(tmp_path, told):
    path = tmp_path / "details.json"
    details.write(path, told)
    assert _equal(details.read(path), told)


def test_an_operation_that_is_not_supported_costs_null(tmp_path):
    path = tmp_path / "details.json"
    details.write(path, drawn.diamond())
    assert json.loads(path.read_text())["compute_s"][2] == [3e-3, None]


def test_no_file_is_no_details_and_another_file_is_refused(tmp_path):
    path = tmp_path / "details.json"
    assert details.read(path) is None
    path.write_text('{"method": "lns"}')
    with pytest.raises(
        UserError, match=r"details\.json' cannot be read: it has no 'objective'; run --task=place"
    ):
        details.read(path)


def test_every_operation_is_where_its_coarse_one_is():
    told = drawn.large(60)
    by_device = [told.memory_bytes[told.op_placement == d].sum() for d in range(3)]
    np.testing.assert_allclose(told.load_bytes, by_device)
