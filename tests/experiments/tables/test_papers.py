"""The published figures."""

import json

import pytest

from experiments.tables import readers
from placement import zoo
from placement.reporting.tables import comparison


@pytest.mark.parametrize("path", sorted(readers.PUBLISHED.glob("*.json")), ids=lambda p: p.stem)
def test_published_figures_name_their_source(path):
    source = json.loads(path.read_text("utf-8"))
    assert any(str(year) in source["title"] for year in range(2017, 2030))
    assert source["table"]
    assert source["differs"]
    for row in source["rows"]:
        graphs = {graph.split(":")[0] for graph in row["graphs"]}
        assert source.get("same_costs") or graphs <= set(zoo.names())
        if "reduction" not in row or "values" not in row:
            continue
        reduction, values = row["reduction"], row["values"]
        known = [values[m] for m in reduction["against"] if values[m] not in (None, comparison.OOM)]
        # Values have two decimals, so either may be off by half a hundredth.
        low, high = ((min(known) + error) for error in (-0.005, 0.005))
        value = values[reduction["method"]]
        assert 100 * (1 - (value + 0.005) / low) <= reduction["percent"]
        assert reduction["percent"] <= 100 * (1 - (value - 0.005) / high)
