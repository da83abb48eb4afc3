"""Streams of requests as OpenVINO itself serves them, with many requests under way at once."""

import time
from typing import Any

import openvino as ov


class Stream:
    """A compiled model with as many requests as its device asks for, all with the same inputs.

    It uses `ov.AsyncInferQueue`, as OpenVINO's `benchmark_app` does.
    """

    def __init__(self, compiled: ov.CompiledModel):
        """Makes OPTIMAL_NUMBER_OF_INFER_REQUESTS requests.

        Raises:
          RuntimeError: OpenVINO cannot make them.
        """
        self._queue = ov.AsyncInferQueue(compiled)
        self._ends_s: list[float] = []
        self._queue.set_callback(self._record_end)

    @property
    def num_requests(self) -> int:
        """The number of requests that are under way at once."""
        return len(self._queue)

    def set_input_tensor(self, index: int, tensor: ov.Tensor) -> None:
        """Sets an input of the model for all requests; its memory is shared, not copied."""
        for request in self._queue:
            request.set_input_tensor(index, tensor)

    def infer(self) -> None:
        """Runs the first request alone, and waits for its outputs."""
        self._queue[0].infer()

    @property
    def output_tensors(self) -> list[ov.Tensor]:
        """The outputs of `infer`."""
        return list(self._queue[0].output_tensors)

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value in all requests."""
        for request in self._queue:
            request.reset_state()

    def stream(self, count: int) -> float:
        """Runs `count` requests, more than `num_requests`; each begins when another has ended.

        Returns:
          The seconds that each request adds once the first `num_requests` have ended.

        Raises:
          RuntimeError: an inference failed.
        """
        assert count > self.num_requests
        self._ends_s.clear()
        for _ in range(count):
            self._queue.start_async()
        self._queue.wait_all()
        first_end_s = self._ends_s[self.num_requests - 1]
        return (self._ends_s[-1] - first_end_s) / (count - self.num_requests)

    def _record_end(self, request: ov.InferRequest, _: Any) -> None:
        del request
        self._ends_s.append(time.perf_counter())
