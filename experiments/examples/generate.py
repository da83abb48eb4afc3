"""Generates tokens with a deployed decoder and, for comparison, with plain OpenVINO.

    python -m experiments.examples.generate FOLDER [PROMPT_LENGTH] [TOKENS]

The folder is that of --task=deploy for a network such as `decoder` of the zoo. Every token is the
one with the largest logit. Plain OpenVINO runs the folder's dynamic model on the CPU in f32 with
all threads. The program prints the times of both, and ends with exit code 1 if a token differs.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import placement
from placement.runtime import devices
from placement.runtime.deployment import shapes
from placement.runtime.models import frontend

PROMPT_LENGTH, NUM_TOKENS = 32, 200
SEED = 0
_Infer = Callable[[np.ndarray], np.ndarray]  # int64 [1, n] -> logits float32 [1, vocabulary]


class Generation(NamedTuple):
    """Tokens and how long each took."""

    tokens: list[int]
    seconds: list[float]

    def describe(self, name: str) -> str:
        """Returns a line with the time of the first token and the median of the next ones."""
        first_ms, next_ms = 1e3 * self.seconds[0], 1e3 * float(np.median(self.seconds[1:]))
        return f"{name:16} first token {first_ms:8.2f} ms, next tokens {next_ms:8.3f} ms each"


def generate(infer: _Infer, prompt: np.ndarray, count: int) -> Generation:
    """Generates `count` tokens greedily after a prompt, int64 [1, n]."""
    ids, tokens, seconds = prompt, [], []
    for _ in range(count):
        begin_s = time.perf_counter()
        logits = infer(ids)
        seconds.append(time.perf_counter() - begin_s)
        tokens.append(int(logits.argmax()))
        ids = np.array([[tokens[-1]]])
    return Generation(tokens, seconds)


def compare(folder: Path, prompt_length: int, num_tokens: int) -> tuple[Generation, Generation]:
    """Generates with the deployed folder and with plain OpenVINO, each from the initial state.

    Both generate two tokens before, so that nothing is compiled in the measured time.
    """
    device = devices.reference_device()
    model = frontend.load(str(folder / shapes.DYNAMIC_FILE))
    core = devices.open_core([device])
    compiled = core.compile_model(model, device.name, dict(device.properties))
    request = compiled.create_infer_request()
    vocabulary = compiled.output(0).get_partial_shape()[-1].get_length()
    prompt = np.random.default_rng(SEED).integers(0, vocabulary, (1, prompt_length))
    results = []
    with placement.load(folder) as network:
        for infer, reset_state in (
            (lambda ids: network.infer([ids])[0], network.reset_state),
            (lambda ids: np.array(request.infer([ids])[0]), request.reset_state),
        ):
            generate(infer, prompt, 2)
            reset_state()
            results.append(generate(infer, prompt, num_tokens))
    deployed, plain = results
    return deployed, plain


def main(folder: str, prompt_length: str = "", num_tokens: str = "") -> None:
    """Prints both times, and whether all tokens are equal."""
    count = int(num_tokens or NUM_TOKENS)
    deployed, plain = compare(Path(folder), int(prompt_length or PROMPT_LENGTH), count)
    print(deployed.describe("placement.load"))
    print(plain.describe("plain OpenVINO"))
    num_equal = sum(a == b for a, b in zip(deployed.tokens, plain.tokens, strict=True))
    print(f"{num_equal} of {count} tokens are equal, {len(set(plain.tokens))} of them different")
    if num_equal < count:
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
