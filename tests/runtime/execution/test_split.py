"""Models cut into parts, on two host devices that work at the same time.

Both compute in f32 but where it says otherwise, so that what is checked is the cut and not a
precision.
"""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.analysis import segments
from placement.costs import tables
from placement.errors import UserError
from placement.graphs import coarsen
from placement.runtime import devices
from placement.runtime.execution import split
from placement.runtime.execution.executor import Executor
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.models import colocation, extract, frontend, outputs
from tests import helpers
from tests.runtime import small
from tests.runtime.sample_models import MODELS

HOST = devices.resolve("host:f32,f32")
A, B = (device.name for device in HOST)
HAS_BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="needs a processor that computes in bf16")
# Models whose operations are also run each in a part of its own.
FINE = ("branches", "loop", "int8")
CONSTANT_OUTPUTS = ("light_shufflenet",)  # its weights are all the same
SAMPLE = ("light_shufflenet", "branches", "loop", "states", "cache", "int8")


@pytest.fixture(scope="module")
def workers():
    made = Workers()
    yield made
    made.close()


@pytest.fixture(scope="module")
def core():
    return small.open_core([*HOST, *devices.resolve("host")])


def run(core, workers, model, cut, host=HOST, **how):
    """The outputs of inferences with the inputs of seed 0."""
    executor = Executor(Submodels(core, model), cut, host, workers)
    return small.outputs(executor, frontend.example_inputs(model, 0), **how)


def error(model, found, **how):
    wanted = small.expected(model, frontend.example_inputs(model, 0), **how)
    assert [a.dtype for a in found] == [a.dtype for a in wanted]
    return outputs.compare(wanted, found).error


def cuts(model: ov.Model) -> list[list[Segment]]:
    """Random placements of the coarse graph, cut as those to be measured are; of a graph that
    coarsening leaves as one operation, four segments of the operations in order instead.
    """
    graph = extract.op_graph(model, name="model", constants=False).graph
    coarse = coarsen.coarsen(graph)
    rng, size = np.random.default_rng(0), coarse.graph.num_ops
    if size == 1:
        quarters = np.array_split(np.array(graph.op_names), 4)
        return [[Segment(HOST[i % 2].name, tuple(q.tolist())) for i, q in enumerate(quarters)]]
    costs = tables.coarse_costs(
        helpers.random_costs(rng, graph, 2), coarse.assignment, coarse.edges
    )
    problem = helpers.as_problem(coarse.graph, costs, "makespan")
    members = coarsen.list_member_names(graph, coarse.assignment)
    placements = [
        rng.random(size) < min(0.5, 12 / size),
        np.arange(size) * 4 // size % 2,
        np.arange(size) % 2,
    ]
    if graph.num_ops > 100:  # compiling every part takes long
        placements = placements[:2]
    return [
        [
            Segment(HOST[placement[at[0]]].name, tuple(name for op in at for name in members[op]))
            for at in segments.cut(problem, placement)
        ]
        for placement in (p.astype(np.int32) for p in placements)
    ]


def finest_cut(model: ov.Model) -> list[Segment]:
    """Returns a cut with every operation in a part of its own, on alternating devices."""
    graph = extract.op_graph(model, name="model", constants=False).graph
    cut = [Segment(HOST[i % 2].name, (op,)) for i, op in enumerate(graph.op_names)]
    computing = [kind for kind in graph.op_types if kind not in ("Parameter", "Result")]
    assert len(split.split_model(model, cut).parts) == len(computing) > 3
    return cut


@pytest.mark.parametrize("name", SAMPLE)
def test_placements_equal_one_device(name, core, workers):
    model = frontend.prepare(MODELS[name]())
    inputs = frontend.example_inputs(model, 0)
    inferences = 3 if colocation.is_stateful(model) else 1
    reference = small.reference(model)
    wanted = small.expected(reference, inputs, inferences=inferences)
    others = small.expected(reference, frontend.example_inputs(model, 1), inferences=inferences)
    differ = any(not np.array_equal(a, b) for a, b in zip(wanted, others, strict=True))
    assert differ or name in CONSTANT_OUTPUTS  # else any placement would compute them
    if inferences > 1:
        assert not np.allclose(wanted[0], wanted[1], atol=1e-3)
    allowed = outputs.tolerance(HOST, quantised=outputs.is_quantised(model))
    submodels = Submodels(core, model)
    counts = set()
    for cut in cuts(model) + ([finest_cut(model)] if name in FINE else []):
        executor = Executor(submodels, cut, HOST, workers)
        counts.add(len(executor.split.parts))
        for _ in range(2):  # the second time from the initial states again
            found = small.outputs(executor, inputs, inferences=inferences)
            assert [array.dtype for array in found] == [array.dtype for array in wanted]
            assert outputs.compare(wanted, found).error <= allowed
            executor.reset_state()
    assert max(counts) > 1


def test_dynamic_lengths_may_change(core, workers):
    """What is handed over then lies elsewhere, and is another time as long."""
    source = ops.parameter([6], np.float32, name="x")
    rows = ops.non_zero(ops.greater(source, np.float32(0), name="more"), "i64", name="rows")
    found = ops.gather(source, ops.squeeze(rows, np.int64(0), name="flat"), np.int64(0), name="at")
    results = [ops.result(ops.multiply(found, np.float32(2), name="twice"), name="y")]
    model = ov.Model(results, [source], "dynamic")
    cut = [Segment(A, ("more",)), Segment(B, ("rows",)), Segment(A, ("flat", "at"))]
    executor = Executor(Submodels(core, model), [*cut, Segment(B, ("twice",))], HOST, workers)
    assert len(executor.split.parts) == 4
    for values in ([1, -1, 2, 3, -1, 4], [-1, -1, 5, -1, -1, -1], [-1] * 6, [1, 2, 3, 4, 5, 6]):
        array = np.array(values, np.float32)
        (output,) = small.outputs(executor, [array])
        np.testing.assert_array_equal(output, 2 * array[array > 0])


def test_submodels_share_weights():
    model = small.shared_constant()
    parts = split.split_model(model, [Segment(A, ("first",)), Segment(B, ("second",))]).parts
    addresses = {
        op.data.ctypes.data
        for part_model in (model, *split.build_submodels(model, parts, {}))
        for op in part_model.get_ordered_ops()
        if op.get_friendly_name() == "matrix"
    }
    assert len(addresses) == 1


def test_outputs_may_have_readers(core, workers):
    """Both outputs of an operation go to different parts, one of them to two and out of the model;
    an input and a constant are outputs as they are.
    """
    source = ops.parameter([4, 8], np.float32, name="x")
    other = ops.parameter([4, 4], np.float32, name="other")
    both = ops.split(ops.tanh(source, name="tanh"), np.int64(1), 2, name="both")
    more = ops.add(both.output(0), other, name="more")
    less = ops.subtract(both.output(1), both.output(0), name="less")
    square = ops.multiply(both.output(0), both.output(0), name="square")
    fixed = ops.constant(np.arange(3, dtype=np.float32), name="fixed")
    values = [square, both.output(0), other, fixed, less, more, both.output(0), less]
    results = [ops.result(value, name=f"y{i}") for i, value in enumerate(values)]
    model = ov.Model(results, [source, other], "model")
    cut = [
        Segment(A, ("tanh", "both")),
        Segment(B, ("more",)),
        Segment(A, ("less",)),
        Segment(B, ("square",)),
    ]
    found = run(core, workers, model, cut)
    assert len(found) == 8
    assert error(model, found) <= 1e-6


def test_parts_may_only_write_variables(core, workers):
    """Its sum is an output of another part, so that this one has no output at all."""
    model = small.counter()
    model.add_results([ops.result(ops.tanh(model.get_parameters()[0], name="tanh"), name="z")])
    model.remove_result(model.get_results()[0])
    cut = [Segment(B, ("read", "sum", "write")), Segment(A, ("tanh",))]
    parts = split.split_model(model, cut).parts
    assert [(part.model_outputs, part.sent_tensors) for part in parts] == [((), ()), ((0,), ())]
    assert error(model, run(core, workers, model, cut, inferences=2), inferences=2) <= 1e-6


DIAMOND = (Segment(A, ("top",)), Segment(B, ("left",)), Segment(A, ("right",)))


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (DIAMOND, "once, such as 'bottom'"),
        ((*DIAMOND, Segment(B, ("bottom", "top"))), "once, such as 'top'"),
        ((*DIAMOND, Segment(B, ("bottom", "botom"))), "once, such as 'botom'"),
        ((Segment(B, ("y",)), Segment(B, ("bottom",)), *DIAMOND), "segment 1 reads from segment"),
        (
            (Segment(A, ("top", "bottom")), Segment(B, ("left", "right"))),
            "segment 0 reads from segment 1",
        ),
        ((), "once, such as"),
    ],
)
def test_wrong_cuts_are_refused(cut, said):
    with pytest.raises(UserError, match=said) as caught:
        split.split_model(small.diamond(), cut)
    assert "\n" not in str(caught.value)


def test_separated_variables_are_refused():
    cut = [Segment(A, ("read",)), Segment(B, ("sum", "write"))]
    with pytest.raises(UserError, match="variable 'state'"):
        split.split_model(small.counter(), cut)


def joined() -> ov.Model:
    """Convolutions and a pooling that a Concat joins, then a convolution, a sum and a pooling."""
    generator = np.random.default_rng(0)
    ones = [1, 1]

    def convolution(value, name):
        shape = (16, value.get_output_partial_shape(0)[1].get_length(), 3, 3)
        weights = generator.standard_normal(shape) / shape[1] ** 0.5 / 3
        constant = ops.constant(weights.astype(np.float32), name=f"w_{name}")
        return ops.convolution(value, constant, ones, ones, ones, ones, name=name)

    source = ops.parameter([1, 16, 12, 12], np.float32, name="x")
    stem = convolution(source, "stem")
    left, right = convolution(stem, "left"), convolution(stem, "right")
    largest = ops.max_pool(stem, ones, ones, ones, ones, [3, 3], name="largest")
    joint = ops.concat([left, largest.output(0), right], 1, name="joint")
    total = ops.add(convolution(joint, "last"), right, name="total")
    mean = ops.avg_pool(total, [2, 2], [0, 0], [0, 0], [2, 2], False, name="mean")
    return ov.Model([ops.result(mean, name="y")], [source], "joined")


JOINED = ("stem", "left", "largest", "right", "joint", "last", "total", "mean")


@pytest.mark.parametrize("together", [("last", "total"), ()])
@pytest.mark.parametrize("precision", ["f32", pytest.param("bf16", marks=needs_bf16)])
def test_tensors_keep_plugin_formats(core, workers, precision, together):
    host = devices.resolve(f"host:{precision},{precision}")
    devices.register_devices(core, host)
    model = joined()
    submodels = Submodels(core, model)
    # A sum of a convolution in the same part the plug-in fuses with it.
    groups = [(name,) for name in JOINED if name not in together]
    groups.insert(JOINED.index(together[0]) if together else len(groups), together)
    cut = [Segment(host[i % 2].name, group) for i, group in enumerate(groups) if group]
    executor = Executor(submodels, cut, host, workers)
    found = small.outputs(executor, frontend.example_inputs(model, 0))
    assert error(model, found) <= outputs.tolerance(host)
    (one,) = executor.requests
    for part, request in zip(executor.split.parts, one._infer_requests, strict=True):
        compiled = request.get_compiled_model()
        ports = dict(zip(part.inputs, compiled.inputs, strict=True))
        ports |= dict(zip(part.sent_tensors, compiled.outputs, strict=not part.model_outputs))
        ports.pop(("x", 0), None)
        assert ports
        for (name, _), port in ports.items():
            # The model's own output is f32, and so is what the plug-in computes for it alone.
            kept = "f32" if name in ("last", "total") else precision
            assert port.get_element_type().get_type_name() == kept
            assert port.get_partial_shape()[3] in (16, 48)  # channels, which are last


@needs_bf16
def test_precisions_may_differ(core, workers):
    host = devices.resolve("host:f32,bf16")
    model = joined()
    for first in range(2):
        cut = [Segment(host[(i + first) % 2].name, (name,)) for i, name in enumerate(JOINED)]
        assert 0 < error(model, run(core, workers, model, cut, host)) <= 0.1
