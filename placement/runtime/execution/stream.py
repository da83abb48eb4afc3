"""Requests of a model that are under way at once, and streams as OpenVINO itself serves them."""

import time
from collections.abc import Sequence
from typing import Any

import openvino as ov


class RequestGroup:
    """Requests of one model, all with the same inputs, that may be under way at once."""

    def __init__(self, requests: Sequence[Any]):
        self.requests = requests

    @property
    def num_requests(self) -> int:
        """The number of requests."""
        return len(self.requests)

    def set_input_tensor(self, index: int, tensor: ov.Tensor) -> None:
        """Sets an input of the model for all requests; its memory is shared, not copied."""
        for request in self.requests:
            request.set_input_tensor(index, tensor)

    def infer(self) -> None:
        """Runs the first request alone, and waits for its outputs."""
        self.requests[0].infer()

    @property
    def output_tensors(self) -> list[ov.Tensor]:
        """The outputs of `infer`, in order, valid until the next inference."""
        return list(self.requests[0].output_tensors)

    def reset_state(self) -> None:
        """Sets every variable of the model to its initial value in all requests."""
        for request in self.requests:
            request.reset_state()


class Stream(RequestGroup):
    """A compiled model with as many requests as its device asks for.

    It uses `ov.AsyncInferQueue`, as OpenVINO's `benchmark_app` does.
    """

    def __init__(self, compiled: ov.CompiledModel):
        """Makes OPTIMAL_NUMBER_OF_INFER_REQUESTS requests."""
        self._queue = ov.AsyncInferQueue(compiled)
        super().__init__(list(self._queue))
        self._ends_s: list[float] = []
        self._queue.set_callback(lambda *_: self._ends_s.append(time.perf_counter()))

    def stream(self, count: int) -> float:
        """Runs `count` requests, more than `num_requests`; each begins when another has ended.

        Returns the seconds that each request adds once the first `num_requests` have ended.
        """
        assert count > self.num_requests
        self._ends_s.clear()
        for _ in range(count):
            self._queue.start_async()
        self._queue.wait_all()
        first_end_s = self._ends_s[self.num_requests - 1]
        return (self._ends_s[-1] - first_end_s) / (count - self.num_requests)
