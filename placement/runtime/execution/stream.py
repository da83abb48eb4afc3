"""A stream of requests as OpenVINO serves it by itself: many of one model under way at once."""

import time
from typing import Any

import openvino as ov


class Stream:
    """As many requests of a compiled model as its device asks for.

    What `ov.AsyncInferQueue` does, and `benchmark_app` with it. All requests have the same inputs.
    """

    def __init__(self, compiled: ov.CompiledModel):
        """Makes the requests, OPTIMAL_NUMBER_OF_INFER_REQUESTS of them.

        Raises:
          RuntimeError: OpenVINO's own.
        """
        self._queue = ov.AsyncInferQueue(compiled)
        self._ended: list[float] = []
        self._queue.set_callback(self._end)

    @property
    def num_requests(self) -> int:
        """How many requests are under way at once."""
        return len(self._queue)

    def set_input_tensor(self, index: int, tensor: ov.Tensor) -> None:
        """Sets an input of the model, of all requests; its memory is shared, not copied."""
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
        """Sets every variable of the model to its initial value, of all requests."""
        for request in self._queue:
            request.reset_state()

    def stream(self, count: int) -> float:
        """Runs `count` requests, more than `num_requests`; a request begins where one has ended.

        Returns:
          Seconds that each request adds, once the first `num_requests` have ended.

        Raises:
          RuntimeError: OpenVINO's own.
        """
        assert count > self.num_requests
        self._ended.clear()
        for _ in range(count):
            self._queue.start_async()
        self._queue.wait_all()
        first = self._ended[self.num_requests - 1]
        return (self._ended[-1] - first) / (count - self.num_requests)

    def _end(self, request: ov.InferRequest, _: Any) -> None:
        del request
        self._ended.append(time.perf_counter())
