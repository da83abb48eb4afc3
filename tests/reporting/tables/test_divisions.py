"""Operations that are kept off a device, as report.md and deploy.md show them."""

from placement.reporting.tables import divisions


def division(**changes):
    culprits = [
        {"ops": ["mix"], "error": 0.51, "run_on": ["CPU_F32"]},
        {"ops": [f"conv_{i}" for i in range(12)], "error": None, "run_on": ["CPU", "NPU"]},
    ]
    record = {
        "device": "GPU",
        "label": "GPU [f16]",
        "max_error": 0.1,
        "whole_error": 0.499,
        "error": 0.0133,
        "num_inputs": 3,
        "num_new_inputs": 1,
        "num_beside": 2,
        "culprits": culprits,
    }
    return record | changes


def test_the_page_names_operations_errors_and_devices():
    text = divisions.markdown([division()])
    assert "on `GPU [f16]`, outputs differ by 0.499" in text
    assert "operations below (13, with 2 more), they differ by 0.0133" in text
    assert "Inputs: 3, of which 1 served only this check." in text
    assert "| GPU | `mix` | 0.51 | CPU_F32 |" in text
    assert "`conv_9`, 2 more | not finite | CPU, NPU |" in text


def test_outputs_that_are_not_finite_are_said_to_be():
    text = divisions.markdown([division(whole_error=None, num_beside=0)])
    assert "outputs are not finite" in text
    assert "below (13)," in text
