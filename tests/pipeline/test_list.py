"""The list of everything that a run can use."""

import importlib.util

from placement import methods, simulators, zoo
from placement.costs import roofline
from placement.pipeline import list, loading
from placement.runtime import scotch
from placement.zoo import synthetic


def test_everything_is_described():
    sections = list.sections()
    expected = {
        *zoo.names(),
        *(f"synthetic:family={name}" for name in synthetic.summaries()),
        *methods.METHODS,
        *simulators.OBJECTIVES,
        *loading.BACKENDS,
        *roofline.SPECS,
        *("auto", "host", "CPU"),
    }
    listed = {name.partition(",")[0] for texts in sections.values() for name in texts}
    assert listed - {"precisions"} == expected  # which needs bf16
    for texts in sections.values():
        for name, text in texts.items():
            assert len(text) > 10, name
            assert "\n" not in text


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(scotch, "_find_program", lambda: None)
    listed = list.method_sections()
    assert "the extra 'solvers'" in listed["partitioners"]["metis"]
    assert listed["partitioners"]["scotch"].endswith("apt-get install scotch)")
    (solvers,) = [texts for texts in listed.values() if "cpsat" in texts]
    assert "ortools is not installed" in solvers["cpsat"]
    assert solvers["heft"].endswith("[makespan]")
    assert solvers["annealing"].endswith("[any]")
