"""Loads damaged deployed folders, in a process of its own because loading may crash it.

    python -m tests.runtime.tampering FOLDER SEED COUNT

FOLDER contains both forms of the diamond model. The program prints, as JSON, the number of folders
for each outcome: refused, correct outputs, and every failure.
"""

import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import placement
from placement.errors import UserError

JUNK = (
    *(None, True, 0, -1, 1.5, 10**30, "", "x", "CPU", "GPU.7", "HETERO:CPU", "../x", "a\nb"),
    *("\ud800", "concurrent", "single", [], {}, [[]], [None], {"x": {}}, [["CPU", 1]]),
)
PROPERTIES = {"CACHE_DIR": "cache", "WEIGHTS_PATH": "model.bin", "NUM_STREAMS": 10**6}
TEXTS = ("", "null", "NaN", "[" * 100_000, "9" * 6_000, '{"a":', "nonsense")


def list_places(data: Any) -> list[tuple[Any, Any]]:
    """Returns every place in a JSON value, as a container and a key or index in it."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for key in keys for place in [(data, key), *list_places(data[key])]]


def change_manifest(draw: random.Random, file: Path) -> None:
    """Changes, removes or extends one value in the manifest."""
    if draw.random() < 0.1:
        file.write_text(draw.choice([*TEXTS, file.read_text()[: draw.randrange(2000)]]))
        return
    data = json.loads(file.read_text())
    holder, key = draw.choice(list_places(data))
    kind = draw.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder[key], dict):
        name = draw.choice(list(PROPERTIES))
        holder[key][name] = PROPERTIES[name]
    elif kind == 2 and isinstance(holder[key], list) and holder[key]:
        holder[key].append(draw.choice(holder[key]))
    else:
        holder[key] = draw.choice(JUNK)
    file.write_text(json.dumps(data))


def damage_file(draw: random.Random, file: Path) -> None:
    """Damages or replaces a file, whatever its content."""
    content = file.read_bytes()
    position = draw.randrange(len(content))
    flipped = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
    file.unlink()
    contents = [flipped, content + b"x", content[:position], bytes(len(content)), b""]
    draw.choice(
        [
            *(lambda new=new: file.write_bytes(new) for new in contents),
            *(lambda: None, file.mkdir, lambda: os.mkfifo(file), lambda: file.symlink_to(file)),
        ]
    )()


def load_and_infer(folder: Path, concurrent: bool | None, expected: np.ndarray) -> str:
    """Returns 'refused', 'right', or a description of the failure."""
    array = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    files_before = sorted(folder.iterdir())
    try:
        with placement.load(folder, concurrent=concurrent) as net:
            (output,) = net.infer([array])
        is_close = np.allclose(output, expected, atol=0.03 * np.ptp(expected))
        result = "right" if is_close else "wrong outputs"
    except UserError as error:
        result = "refused" if "\n" not in str(error) else f"several lines: {error}"
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return result if sorted(folder.iterdir()) == files_before else f"{result}, and wrote a file"


def main(folder: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    array = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    with placement.load(folder, concurrent=False) as net:
        (expected,) = net.infer([array])
    counts: dict[str, int] = {}
    for _ in range(count):
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name) / "deploy"
            shutil.copytree(folder, copy)
            if draw.random() < 0.7:
                change_manifest(draw, copy / "placement.json")
            else:
                damage_file(draw, draw.choice(sorted(copy.glob("model-*"))))
            result = load_and_infer(copy, draw.choice([None, True, False]), expected)
            counts[result] = counts.get(result, 0) + 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
