"""Parts on two host devices at the same time, each on a core of its own where there are two."""

import itertools
import os
import threading
import time
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.runtime import devices
from placement.runtime.execution.executor import Executor, Span
from placement.runtime.execution.split import Segment
from placement.runtime.execution.submodels import Submodels
from placement.runtime.execution.workers import Workers
from placement.runtime.models import frontend
from tests.runtime import small

HOST = devices.resolve("host:f32,f32")
A, B = (device.name for device in HOST)
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@pytest.fixture(scope="module")
def core():
    return small.open_core(HOST)


@pytest.fixture(scope="module")
def workers():
    started_workers = Workers()
    yield started_workers
    started_workers.close()


def test_equal_submodels_compile_once(core, workers):
    model = small.branches()
    (inputs,) = frontend.example_inputs(model, 0)
    expected = small.expected(model, [inputs])
    submodels = Submodels(core, model)

    def ran(cut) -> int:
        before = submodels.num_compilations
        found = small.outputs(Executor(submodels, cut, HOST, workers), [inputs])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)
        return submodels.num_compilations - before

    left, right, total = small.in_two(3, A, B)
    assert ran((left, right, total)) == 3
    assert ran((right, left, total)) == 0  # the order is not of the content
    # The sum alone is elsewhere; equal host devices share what is compiled.
    elsewhere = int(HOST[0].properties != HOST[1].properties)
    assert ran((left, right, Segment(B, total.ops))) == elsewhere
    assert ran((left, Segment(B, right.ops[:2]), Segment(A, right.ops[2:]), total)) == 2
    assert ran((Segment(B, left.ops), right, total)) == elsewhere
    assert ran((left, right, total)) == 0
    reversed_ops = tuple(Segment(device, ops[::-1]) for device, ops in (left, right, total))
    assert ran(reversed_ops) == 0


def compute_overlap(spans: list[Span]) -> float:
    """Returns the share of an inference during which at least two devices were computing."""
    events = sorted(event for span in spans for event in ((span.begin_s, 1), (span.end_s, -1)))
    overlap_s, num_running = 0.0, 0
    for (begin_s, change), (end_s, _) in itertools.pairwise(events):
        num_running += change
        if num_running > 1:
            overlap_s += end_s - begin_s
    return overlap_s / max(events[-1][0] - events[0][0], 1e-12)


@pytest.mark.alone
@two_cores
def test_branches_overlap_on_two_cores(core, workers):
    """The best of many inferences: on a busy machine a thread waits for its core now and then."""
    length = 4
    model = small.branches(size=384, length=length)
    executor = Executor(Submodels(core, model), small.in_two(length, A, B), HOST, workers)
    small.outputs(executor, frontend.example_inputs(model, 0))
    shares, end = [0.0], time.monotonic() + 60
    while max(shares) <= 0.5 and time.monotonic() < end:
        executor.infer()
        shares.append(compute_overlap(executor.requests[0].spans))
    assert max(shares) > 0.5
    cores = [os.sched_getaffinity(workers.thread_ids[name]) for name in (A, B)]
    assert cores == [{HOST[0].core}, {HOST[1].core}]
    assert cores[0] != cores[1]
    assert len({*workers.thread_ids.values(), threading.get_native_id()}) == 3


def test_ready_parts_run_in_order(core, workers):
    """All wait for one part: those of its own device then run in the order in which they stand."""
    source = ops.parameter([8, 8], np.float32, name="x")
    top = ops.tanh(source, name="top")
    names = [f"op_{i}" for i in (3, 0, 4, 1, 2)]
    several = [ops.add(top, np.float32(i), name=name) for i, name in enumerate(names)]
    last = ops.concat(several, 0, name="last")
    model = ov.Model([ops.result(last, name="y")], [source], "several")
    ordered = sorted(names)
    cut = [Segment(A, ("top",)), *(Segment(B, (name,)) for name in ordered), Segment(A, ("last",))]
    executor = Executor(Submodels(core, model), cut, HOST, workers)
    for _ in range(5):
        small.outputs(executor, frontend.example_inputs(model, 0))
        assert [span.part for span in executor.requests[0].spans] == list(range(7))


def failing() -> ov.Model:
    """`branches`, whose right branch ends in a Reshape that some values of an input make fail, and
    then a sign.
    """
    model = small.branches()
    nodes = {op.get_friendly_name(): op for op in model.get_ordered_ops()}
    shape = ops.parameter([2], np.int64, name="shape")
    reshaped = ops.reshape(nodes["right_2"], shape, False, name="reshaped")
    nodes["sum"].input(1).replace_source_output(reshaped.output(0))
    nodes["sum"].validate_and_infer_types()
    result = ops.result(ops.negative(nodes["sum"], name="minus"), name="y")
    return ov.Model([result], [*model.get_parameters(), shape], "failing")


LEFT, RIGHT, _ = small.in_two(3, A, B)
FAILING = (LEFT, Segment(B, (*RIGHT.ops, "reshaped", "sum")), Segment(A, ("minus",)))
GOOD, BAD = np.array([8, 8]), np.array([5, 7])


def test_streams_after_errors_are_right(core, workers):
    model = failing()
    (source,) = frontend.example_inputs(small.branches(), 0)
    expected = small.expected(small.branches(), [source])
    executor = Executor(Submodels(core, model), FAILING, HOST, workers, num_requests=3)
    executor.set_input_tensor(0, ov.Tensor(source))
    for _ in range(3):
        executor.set_input_tensor(1, ov.Tensor(BAD))
        with pytest.raises(RuntimeError, match="reshaped"):
            executor.stream(10)
        assert workers._num_active == 0  # nothing is, so that they may be used again
        executor.set_input_tensor(1, ov.Tensor(GOOD))
        executor.stream(10)
        for request in executor.requests:
            np.testing.assert_allclose(
                request.output_tensors[0].data, -expected[0], rtol=1e-4, atol=1e-4
            )


def test_streamed_requests_do_not_mix(core, workers):
    """Each has an input of its own, for as many requests as come its way."""
    model = small.branches(size=64)
    (source,) = frontend.example_inputs(model, 0)
    executor = Executor(
        Submodels(core, model), small.in_two(3, A, B), HOST, workers, num_requests=3
    )
    inputs = [np.float32(i + 1) * source for i in range(3)]
    for request, array in zip(executor.requests, inputs, strict=True):
        request.set_input_tensor(0, ov.Tensor(array))
    for count in (4, 40):
        seconds = executor.stream(count)
        assert 0 < seconds < 60
        for request, array in zip(executor.requests, inputs, strict=True):
            (expected,) = small.expected(model, [array])
            (output,) = request.output_tensors
            np.testing.assert_allclose(output.data, expected, rtol=1e-3, atol=1e-3)
            assert sorted(span.part for span in request.spans) == [0, 1, 2]


def test_streamed_requests_run_once(core, workers):
    """Counted by a variable, of which each request has its own."""
    model = small.counter()
    cut = (Segment(A, ("read", "sum", "write")),)
    for num_requests, count in ((1, 7), (3, 7), (3, 4)):
        executor = Executor(Submodels(core, model), cut, HOST, workers, num_requests=num_requests)
        executor.set_input_tensor(0, ov.Tensor(np.ones(4, np.float32)))
        executor.stream(count)
        ran = [request.output_tensors[0].data[0] for request in executor.requests if request.spans]
        assert sum(ran) == count
        assert len(ran) == num_requests
        executor.reset_state()
        executor.infer()
        np.testing.assert_array_equal(executor.output_tensors[0].data, np.ones(4))


def test_idle_threads_sleep(core, workers):
    """A thread that spins is ready to run at each of twenty looks."""

    def is_asleep() -> bool:
        states = set()
        for _ in range(20):
            time.sleep(0.002)
            for thread in workers.thread_ids.values():
                stat = Path(f"/proc/self/task/{thread}/stat").read_text()
                states.add(stat.rpartition(")")[2].split()[0])
        return states == {"S"}

    model = small.branches()
    executor = Executor(Submodels(core, model), small.in_two(3, A, B), HOST, workers)
    small.outputs(executor, frontend.example_inputs(model, 0), inferences=5)
    end = time.monotonic() + 20  # on a busy machine it takes a while
    while not (asleep := is_asleep()) and time.monotonic() < end:
        pass
    assert asleep
