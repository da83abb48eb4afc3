"""Devices with wrong outputs, and the operations responsible, on emulated and real devices."""

import math

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.errors import UserError
from placement.graphs import coarsen
from placement.pipeline import accuracy, loading
from placement.pipeline.accuracy import Part
from placement.problem import Problem
from placement.runtime import devices
from placement.runtime.measurement import local
from placement.runtime.models import extract, frontend
from placement.runtime.models.outputs import OutputCheck
from tests import helpers
from tests.runtime import small
from tests.runtime.emulation import DEVICE, EmulatedMeasurer

NAMES = ("CPU", DEVICE.name)
CONVOLUTIONS = {f"conv_{i}" for i in range(6)}


def bisect(num_units, measure, negligible, is_over=False):
    """Divides all units until errors are at most negligible."""
    parts = accuracy.bisect(
        Part(range(num_units), measure(0, num_units)),
        lambda units: measure(units.start, units.stop),
        lambda part: not part.error > negligible or is_over,
    )
    return [(part.units.start, part.units.stop, part.error) for part in parts]


def test_bisection_finds_one_unit():
    errors, measured = np.zeros(1024), []
    errors[700] = 0.5

    def measure(first, last):
        measured.append((first, last))
        return errors[first:last].sum()

    parts = bisect(1024, measure, 0.01)
    assert [part for part in parts if part[2]] == [(700, 701, 0.5)]
    assert len(measured) == 1 + 2 * 10


@pytest.mark.parametrize(
    ("measure", "negligible", "is_over", "parts"),
    [
        # Units 2 to 5 are wrong only if all four of them are on the device.
        (lambda i, j: 0.8 if i <= 2 and j >= 6 else 0.0, 0.01, False, [(0, 8, 0.8)]),
        (lambda i, j: 0.5 * (i <= 5 < j), 0.6, False, [(0, 8, 0.5)]),
        (lambda i, j: 0.5 * (i <= 5 < j), 0.1, True, [(0, 8, 0.5)]),
        # The last two units cannot be measured by themselves.
        (
            lambda i, j: math.nan if i == 6 else math.inf if i <= 4 < j else 0.0,
            0.1,
            False,
            [(0, 4, 0.0), (4, 8, math.inf)],
        ),
    ],
    ids=["together", "negligible", "no time", "failed"],
)
def test_parts_stay_whole(measure, negligible, is_over, parts):
    assert bisect(8, measure, negligible, is_over) == parts


def make_problem(model: ov.Model, objective: str = "serial") -> tuple[loading.Network, Problem]:
    """Makes a problem in which every operation is twice as fast on the emulated device."""
    graph = extract.op_graph(model, name="model").graph
    net = loading.Network(model, graph, coarsen.coarsen(graph, np.zeros(graph.num_edges, bool)), {})
    compute_s = np.tile([2.0, 1.0], (graph.num_ops, 1)).astype(np.float32)
    compute_s[[kind in ("Parameter", "Constant", "Result") for kind in graph.op_types]] = 0.0
    costs = helpers.unit_costs(graph, compute_s=compute_s)
    return net, loading.make_problem(net, costs, NAMES, objective)


def divide(measurer_type=EmulatedMeasurer, *arguments, objective="serial", time_limit_s=60.0):
    model = frontend.prepare(small.offset(), "")
    measurer = measurer_type(model, *arguments)
    placed = make_problem(model, objective)
    return accuracy.divide(*placed, DEVICE, measurer.check_whole(), measurer, time_limit_s)


@pytest.mark.parametrize("objective", ["serial", "makespan"])
def test_culprits_leave_the_device(objective):
    division = divide(objective=objective)
    assert division.whole_error > division.max_error >= division.error
    culprits = {op for culprit in division.culprits for op in culprit.ops}
    assert {"raised", "mix"} <= culprits <= {"raised", "mix", "back"}
    assert division.allowed >= CONVOLUTIONS
    assert not culprits & division.allowed
    assert "above all raised" in division.describe()


@pytest.mark.parametrize("factor", [3.0, np.nan])
def test_faulty_kernel_is_found(factor):
    def corrupt(name: str, output: ov.Output) -> ov.Output:
        return ops.multiply(output, np.float32(factor)).output(0) if name == "conv_4" else output

    division = divide(EmulatedMeasurer, corrupt)
    (culprit,) = division.culprits
    assert culprit.ops == ("conv_4",)
    assert len(division.allowed) >= 8
    assert division.error < 1e-3
    (record,) = division.to_json({"conv_4": "CPU"})["culprits"]
    assert record["run_on"] == ["CPU"]


def test_nothing_may_be_left():
    class Wrong(EmulatedMeasurer):
        def ask(self, request):
            return super().ask(request)._replace(error=9.0)

    division = divide(Wrong)
    assert division.allowed == frozenset()
    assert "no part of the model is accurate enough" in division.describe()


def test_failed_placements_count_as_wrong():
    class Failing(EmulatedMeasurer):
        def ask(self, request):
            if request.candidate.affinity["conv_1"] == DEVICE.name:
                raise ChildProcessError("it broke")
            return super().ask(request)

    division = divide(Failing)
    assert "conv_1" not in division.allowed
    assert division.error <= division.max_error


# The choice of each device's precision.


def choose(measurer, given):
    said = []
    wrong = accuracy.find_wrong(measurer, given)
    return accuracy.replace_wrong(measurer, given, wrong, said.append), said


@pytest.mark.skipif(
    "BF16" not in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"),
    reason="needs a processor that computes in bf16",
)
@pytest.mark.parametrize(
    ("spec", "names", "message"),
    [
        ("host", ["CPU_F32_0", "CPU_F32_1"], "; it computes in f32 instead"),
        ("CPU", ["CPU"], "; it computes in f32 instead"),
        (devices.PRECISIONS, ["CPU_F32"], "; it is left out (CPU_F32 computes in f32)"),
    ],
)
def test_wrong_bf16_becomes_f32(spec, names, message):
    given = devices.resolve(spec)
    with local.LocalMeasurer(small.rounded(), given) as measurer:
        chosen, (line,) = choose(measurer, given)
    assert [device.name for device in chosen] == names
    assert {d.properties["INFERENCE_PRECISION_HINT"] for d in chosen} == {"f32"}
    assert line.startswith(given[-1].label)
    assert line.endswith(message)
    with local.LocalMeasurer(small.rounded(), chosen) as measurer:
        assert accuracy.find_wrong(measurer, chosen) == {}


class WrongDevices:
    """Finds these devices wrong in every precision."""

    def __init__(self, *names: str):
        self._names = names

    def ask(self, request):
        wrong = [device.name in self._names for device in request.devices]
        return [OutputCheck(0.5 if each else 0.0, 1e-3) for each in wrong]


def gpu(name: str) -> devices.Device:
    return devices.Device(name, ("Some f16 Card", "f16"), "f16", 1, None, {}, False)


def test_wrong_devices_are_left_out():
    given = gpu("GPU.0"), gpu("GPU.1")
    assert choose(WrongDevices(), given) == (given, [])
    chosen, (line,) = choose(WrongDevices("GPU.0"), given)
    assert chosen == given[1:]
    assert line.startswith("GPU.0 [Some f16 Card, f16]: outputs differ by 0.5")
    assert line.endswith("it is left out (0.5 in f32 too)")
    with pytest.raises(UserError, match=r"no device computes right outputs.* inputs='"):
        choose(WrongDevices("GPU.0", "GPU.1"), given)
