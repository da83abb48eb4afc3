"""Loads deployed folders that something happened to, in a process of its own: it may not survive.

    python -m tests.runtime.tampering FOLDER OTHER SEED COUNT

FOLDER has both forms of the diamond, OTHER another model. Prints, as JSON, how many of the folders
were refused, how many ran right, and what else came of them.
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
    """Every place in a JSON value, as what holds it and its key or index there."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for key in keys for place in [(data, key), *nodes(data[key])]]


def changed_json(draw: random.Random, text: str, folder: Path) -> str:
    """A JSON text with one of its values changed, removed, or added to."""
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


def tell_otherwise(draw: random.Random, folder: Path) -> None:
    """Changes what the model says of how it runs."""
    file, key = folder / "model.xml", draw.choice(KEYS)
    text = file.read_text()
    found = re.search(rf'<{key} value="([^"]*)" />', text)
    assert found is not None, key
    value = saxutils.unescape(found[1], {"&quot;": '"'})
    with_json = key in ("affinity", "segments", "devices", "config")
    if with_json and draw.random() < 0.8:
        value = changed_json(draw, value, folder)
    else:
        value = draw.choice([*EXTREME_TEXTS, value[: len(value) // 2], "single", "HETERO:CPU_F32"])
    element = f"<{key} value={saxutils.quoteattr(value)} />"
    told = draw.choice([element, element, element, "", f"<{key}><x>1</x></{key}>"])
    file.write_text(text.replace(found[0], told))
    if key != "digest":
        description.seal(file)


def damage(draw: random.Random, folder: Path, other: Path) -> None:
    """Does something to a file that has nothing to do with what is in it."""
    file = folder / draw.choice(["model.xml", "model.bin"])
    content = file.read_bytes()
    at = draw.randrange(len(content))
    file.unlink()
    flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    illegible = [content[:at], draw.randbytes(len(content)), bytes(len(content)), b""]
    ways: list[Callable[[], object]] = [
        lambda: None,
        lambda: file.write_bytes(flipped),
        lambda: file.write_bytes(content + b"x"),
        lambda: shutil.copy(other / file.name, file),
        file.mkdir,
        lambda: os.mkfifo(file),
        lambda: file.symlink_to(file),
        *(functools.partial(file.write_bytes, found) for found in illegible),
    ]
    way = draw.choice(ways)
    way()
    if isinstance(way, functools.partial) and file.name == "model.xml":
        description.seal(file)  # so that OpenVINO has to read it


def outcome(folder: Path, concurrent: bool | None, right: np.ndarray, array: np.ndarray) -> str:
    """'refused', 'right', or what is wrong."""
    before = sorted(folder.iterdir())
    try:
        with placement.load(folder, concurrent=concurrent) as net:
            (output,) = net.infer([array])
        close = np.allclose(output, right, atol=0.03 * np.ptp(right))
        found = "right" if close else "wrong outputs"
    except UserError as error:
        found = "refused" if "\n" not in str(error) else f"several lines: {error}"
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return found if sorted(folder.iterdir()) == before else f"{found}, and wrote a file"


def main(folder: Path, other: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    array = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    with placement.load(folder, concurrent=False) as net:
        (right,) = net.infer([array])
    told: dict[str, int] = {}
    for _ in range(count):
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name) / "deploy"
            shutil.copytree(folder, copy)
            if draw.random() < 0.7:
                tell_otherwise(draw, copy)
            else:
                damage(draw, copy, other)
            found = outcome(copy, draw.choice([None, True, False]), right, array)
            told[found] = told.get(found, 0) + 1
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
