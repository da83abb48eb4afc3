"""Divisions of a model between an inaccurate device and others, on an emulated device."""

import dataclasses

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.graphs import coarsen
from placement.pipeline import accuracy, loading
from placement.pipeline.settings import Settings
from placement.runtime.models import extract, frontend
from placement.runtime.models.outputs import OutputCheck
from tests import helpers
from tests.runtime import small
from tests.runtime.emulation import DEVICE, EmulatedMeasurer

NAMES = ("CPU", DEVICE.name)


def make_problem(model: ov.Model, objective: str = "serial") -> loading.SearchProblem:
    """Makes a problem in which every operation is twice as fast on the emulated device."""
    graph = extract.op_graph(model, name="model").graph
    no_edges = np.zeros(graph.num_edges, bool)
    net = loading.Network(model, graph, coarsen.coarsen(graph, no_edges), {})
    compute_s = np.tile([2.0, 1.0], (graph.num_ops, 1)).astype(np.float32)
    compute_s[[kind in ("Parameter", "Constant", "Result") for kind in graph.op_types]] = 0.0
    apart = 0.01 * (1 - np.eye(2, dtype=np.float32))
    transfers = {"transfer_latency_s": apart, "transfer_s_per_byte": 0 * apart}
    costs = helpers.unit_costs(graph, compute_s=compute_s, **transfers)
    return loading.make_search_problem(net, costs, NAMES, objective)


def divide(
    model: ov.Model, measurer: EmulatedMeasurer, objective: str = "serial", **how
) -> accuracy.Division:
    given = {
        "whole_check": measurer.check_whole(),
        "num_inputs": len(measurer.samples),
        "time_limit_s": 60.0,
        **how,
    }
    return accuracy.divide(
        make_problem(model, objective),
        DEVICE,
        excluded_devices=(),
        measurer=measurer,
        note=lambda _: None,
        **given,
    )


def test_the_emulated_device_rounds_to_eight_bits():
    source = ops.parameter([3], np.float32, name="x")
    model = ov.Model([ops.result(ops.relu(source, name="y"))], [source], "identity")
    measurer = EmulatedMeasurer(model)
    measurer.samples = ([np.array([1 + 2**-7, 1 + 2**-9, 300.9], np.float32)],)
    ((rounded,),) = measurer._infer(frozenset(["y"]), None)
    np.testing.assert_array_equal(rounded, np.float32([1 + 2**-7, 1.0, 300.0]))


@pytest.mark.parametrize("objective", ["serial", "makespan"])
def test_the_operations_that_round_too_much_are_named_and_kept_off(objective):
    model = frontend.prepare(small.offset(), "")
    measurer = EmulatedMeasurer(model)
    division = divide(model, measurer, objective)
    assert division.whole_error > division.max_error
    assert division.error <= division.max_error
    culprits = {op for culprit in division.culprits for op in culprit.ops}
    assert {"raised", "mix"} <= culprits <= {"raised", "mix", "back"}
    assert not culprits & division.allowed
    convolutions = {f"conv_{i}" for i in range(6)}
    assert convolutions <= division.allowed
    assert division.culprits[0].error > 0.1
    assert "raised (" in division.describe()


def test_sensitivities_are_measured_on_half_of_the_inputs_and_the_result_on_all():
    model = frontend.prepare(small.offset(), "")
    measurer = EmulatedMeasurer(model)
    division = divide(model, measurer)
    assert (division.num_inputs, division.num_new_inputs) == (3, 1)
    assert {request.num_samples for request in measurer.asked[:-1]} == {2}
    assert measurer.asked[-1].num_samples is None
    assert division.num_measurements == len(measurer.asked)


@pytest.mark.parametrize("factor", [3.0, np.nan])
def test_a_faulty_kernel_is_found_whatever_it_computes(factor):
    def corrupt(name: str, output: ov.Output) -> ov.Output:
        return ops.multiply(output, np.float32(factor)).output(0) if name == "conv_4" else output

    model = frontend.prepare(small.offset(), "")
    division = divide(model, EmulatedMeasurer(model, corrupt))
    (culprit,) = division.culprits
    assert culprit.ops == ("conv_4",)
    assert len(division.allowed) >= 8
    assert division.error < 1e-3
    (record,) = division.to_json({"conv_4": "CPU"})["culprits"]
    assert record["run_on"] == ["CPU"]


def test_without_time_the_whole_part_is_kept_off_and_nothing_is_left():
    model = frontend.prepare(small.offset(), "")
    division = divide(
        model, EmulatedMeasurer(model), time_limit_s=0.0, whole_check=OutputCheck(9, 0, 0)
    )
    assert division.allowed == frozenset()
    assert "no part of the model is accurate enough" in division.describe()


def test_placements_that_do_not_run_count_as_wrong_and_are_counted():
    class Failing(EmulatedMeasurer):
        def ask(self, request):
            affinity = getattr(getattr(request, "candidate", None), "affinity", {})
            if affinity.get("conv_1") == DEVICE.name:
                raise ChildProcessError("it broke")
            return super().ask(request)

    model = frontend.prepare(small.offset(), "")
    division = divide(model, Failing(model))
    assert division.num_failed > 0
    assert "conv_1" not in division.allowed


def test_inputs_that_were_not_used_before_keep_more_off_the_device():
    """On the last input `conv_0`, which is right on the others, is wrong."""

    class Sensitive(EmulatedMeasurer):
        def ask(self, request):
            check = super().ask(request)
            is_new = getattr(request, "num_samples", 0) is None
            if is_new and request.candidate.affinity["conv_0"] == DEVICE.name:
                return check._replace(error=1.0)
            return check

    model = frontend.prepare(small.offset(), "")
    division = divide(model, Sensitive(model))
    assert "conv_0" not in division.allowed
    assert division.error <= division.max_error


def test_a_restricted_device_supports_only_what_it_may_run():
    model = frontend.prepare(small.offset(), "")
    problem = make_problem(model)
    division = divide(model, EmulatedMeasurer(model))
    names = problem.full.graph.op_names
    costs = accuracy.restrict(problem.full.costs, names, NAMES, [division])
    supported = {name for name, row in zip(names, costs.compute_s, strict=True) if row[1] < np.inf}
    assert supported == division.allowed
    assert np.isfinite(costs.compute_s[:, 0]).all()


@pytest.mark.parametrize("max_error", [-1.0, float("inf"), float("nan")])
def test_a_limit_that_is_no_size_of_an_error_is_refused(max_error):
    settings = dataclasses.replace(Settings(), max_error=max_error)
    with pytest.raises(loading.UserError, match=r"max_error=.* give a positive number"):
        loading.check_settings(settings)
