"""Loads damaged deployed folders, in a process of its own because loading may crash it.

    python -m tests.runtime.tampering FOLDER OTHER SEED COUNT

FOLDER contains both forms of the diamond model, OTHER another model. The program prints, as JSON,
the number of folders for each outcome: refused, correct outputs, and every failure.
"""

import functools
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax import saxutils

import numpy as np

import placement
from placement.errors import UserError
from placement.runtime.deployment import description

KEYS = ("version", "form", "device", "affinity", "segments", "devices", "digest", "config")
JUNK = (
    *(None, True, False, 0, -1, 1.5, float("nan"), float("inf"), 10**30, "", "x", "CPU", "GPU.7"),
    *(
        "HETERO:CPU",
        "AUTO",
        "../x",
        "a\nb",
        "\ud800",
        [],
        {},
        [[]],
        [None],
        {"x": {}},
        [["CPU", 1]],
    ),
)
WRITING = {
    "CACHE_DIR": "cache",
    "LOG_LEVEL": "LOG_TRACE",
    "WEIGHTS_PATH": "model.bin",
    "DUMP_PATH": "dump",
    "NUM_STREAMS": 10**6,
    "PERF_COUNT": True,
}
EXTREME_TEXTS = ("", "null", "NaN", "[" * 100_000, "9" * 6_000, '{"a":', "nonsense", "concurrent")


def nodes(data: Any) -> list[tuple[Any, Any]]:
    """Returns every place in a JSON value, as a container and a key or index in it."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for key in keys for place in [(data, key), *nodes(data[key])]]


def changed_json(draw: random.Random, text: str, folder: Path) -> str:
    """Returns a JSON text in which one value is changed, removed or extended."""
    data = {"": json.loads(text)}
    holder, key = draw.choice(nodes(data))
    kind = draw.randrange(4)
    if kind == 0 and holder is not data:
        del holder[key]
    elif kind == 1 and isinstance(holder[key], dict):
        name = draw.choice(list(WRITING))
        value = WRITING[name]
        holder[key][name] = str(folder / value) if isinstance(value, str) else value
    elif kind == 2 and isinstance(holder[key], list) and holder[key]:
        holder[key].append(draw.choice(holder[key]))
    else:
        holder[key] = draw.choice(JUNK)
    return json.dumps(data.get(""))


def change_setting(draw: random.Random, folder: Path) -> None:
    """Changes one setting in the model file."""
    file, key = folder / "model.xml", draw.choice(KEYS)
    text = file.read_text()
    match = re.search(rf'<{key} value="([^"]*)" />', text)
    assert match is not None, key
    value = saxutils.unescape(match[1], {"&quot;": '"'})
    with_json = key in ("affinity", "segments", "devices", "config")
    if with_json and draw.random() < 0.8:
        value = changed_json(draw, value, folder)
    else:
        value = draw.choice([*EXTREME_TEXTS, value[: len(value) // 2], "single", "HETERO:CPU_F32"])
    element = f"<{key} value={saxutils.quoteattr(value)} />"
    new_element = draw.choice([element, element, element, "", f"<{key}><x>1</x></{key}>"])
    file.write_text(text.replace(match[0], new_element))
    if key != "digest":
        description.seal(file)


def damage(draw: random.Random, folder: Path, other_folder: Path) -> None:
    """Damages or replaces a file, whatever its content."""
    file = folder / draw.choice(["model.xml", "model.bin"])
    content = file.read_bytes()
    position = draw.randrange(len(content))
    file.unlink()
    flipped = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
    illegible = [content[:position], draw.randbytes(len(content)), bytes(len(content)), b""]
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: file.write_bytes(flipped),
        lambda: file.write_bytes(content + b"x"),
        lambda: shutil.copy(other_folder / file.name, file),
        file.mkdir,
        lambda: os.mkfifo(file),
        lambda: file.symlink_to(file),
        *(functools.partial(file.write_bytes, new_content) for new_content in illegible),
    ]
    change = draw.choice(changes)
    change()
    if isinstance(change, functools.partial) and file.name == "model.xml":
        description.seal(file)  # so that OpenVINO has to read it


def outcome(folder: Path, concurrent: bool | None, expected: np.ndarray, array: np.ndarray) -> str:
    """Returns 'refused', 'right', or a description of the failure."""
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


def main(folder: Path, other_folder: Path, seed: int, count: int) -> None:
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
                change_setting(draw, copy)
            else:
                damage(draw, copy, other_folder)
            result = outcome(copy, draw.choice([None, True, False]), expected, array)
            counts[result] = counts.get(result, 0) + 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
