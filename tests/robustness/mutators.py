"""Seeded mutations of what users give: files and flags that are nearly right."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import numpy_helper

# What stands in the place of a number, a text or anything else.
NUMBERS = (0, -1, 1, 2**31, -(2**63), 10**30, 0.5, 1e308, -1e-308, float("nan"), float("inf"))
TEXTS = ("", " ", "\x00", "\x1b[31m", "[red]x[/red]", "é", "\ud800", "a|b\nc", "../x", "9" * 400)
OTHERS = (None, True, [], {}, [[]], {"a": {}}, [None])


def value(rng: random.Random) -> Any:
    """Anything that JSON can hold, and Python's additions to it."""
    return rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(OTHERS)))


def of_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes that are cut off, turned, doubled, left out, or others altogether."""
    if not data:
        return rng.randbytes(8)
    at = rng.randrange(len(data))
    to = min(len(data), at + rng.choice((1, 1, 4, 64, 1024)))
    return rng.choice(
        (
            data[:at],
            data[:at] + rng.randbytes(to - at) + data[to:],
            data[:to] + data[at:],
            data[:at] + data[to:],
            data[:at] + b"\x00" * (to - at) + data[to:],
            b"",
            rng.randbytes(rng.choice((1, 100))),
        )
    )


def of_json(rng: random.Random, text: str) -> str:
    """JSON in which one to three things differ, or text that is none any more."""
    if rng.random() < 0.15:
        return of_bytes(rng, text.encode()).decode("latin-1")
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(data))
        if not places:
            return json.dumps(value(rng))
        holder, key = rng.choice(places)
        _change(rng, holder, key)
    if rng.random() < 0.03:
        data = value(rng)
    return json.dumps(data)


def of_xml(rng: random.Random, text: str) -> str:
    """XML in which an attribute, or a line, differs."""
    if rng.random() < 0.3:
        lines = text.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        lines[at : at + 1] = rng.choice(([], [lines[at]] * 2, [rng.choice(lines)]))
        return "".join(lines)
    attributes = list(re.finditer(r'="([^"]*)"|<dim>([^<]*)<', text))
    if not attributes:
        return of_bytes(rng, text.encode()).decode("latin-1")
    found = rng.choice(attributes)
    group = 1 if found[1] is not None else 2
    new = str(rng.choice((rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(attributes)[group])))
    return text[: found.start(group)] + new + text[found.end(group) :]


def of_onnx(rng: random.Random, data: bytes) -> bytes:
    """A graph that is wired, named, shaped or filled otherwise."""
    if rng.random() < 0.3:
        return of_bytes(rng, data)
    model = onnx.load_from_string(data)
    graph, kind = model.graph, rng.randrange(6)
    node = rng.choice(graph.node)
    if kind == 0:
        node.op_type = rng.choice(("Relu", "Nothing", "Loop", "", rng.choice(graph.node).op_type))
    elif kind == 1 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(("", "nobody", node.output[0]))
    elif kind == 2:
        node.name = rng.choice(("\x01", "a\nb", rng.choice(graph.node).name))
    elif kind == 3 and graph.input:
        shape = rng.choice(graph.input).type.tensor_type.shape
        for dim in shape.dim:
            dim.dim_value = rng.choice((0, -1, 1, 2**40))
    elif kind == 4 and graph.initializer:
        tensor = rng.choice(graph.initializer)
        array = numpy_helper.to_array(tensor).copy()
        if array.dtype.kind == "f" and array.size:
            array.flat[rng.randrange(array.size)] = rng.choice((float("nan"), float("inf"), 1e38))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    elif graph.node:
        graph.node.remove(node)
    return model.SerializeToString()


def flag(rng: random.Random, keys: list[str]) -> str:
    """A flag with a value that may or may not be one of its own."""
    key = rng.choice((*keys, "no_such_key", ""))
    text = rng.choice(
        (
            *map(str, (rng.choice(NUMBERS), rng.choice(TEXTS), rng.choice(TEXTS))),
            *("hsdag:hidden_size=1000000000", "hsdag:num_samples=0", "lns,heft", "all", "ray"),
            *(
                "synthetic:ops=1",
                "synthetic:family=chain,ops=3",
                "synthetic:ops=-4",
                "nmt:layers=0",
            ),
            *("roofline:", "roofline:cpu", "roofline:cpu,warp", "host:f64", "CPU,CPU", "host:"),
            *("makespan", "max_load", "concurrent", "simulate", "measure", "/dev/null", "/", "."),
        )
    )
    text = text.replace("\x00", "").encode("utf-8", "replace").decode()  # what a shell can give
    return rng.choice((f"--config.{key}={text}",) * 8 + (f"--config.{key}", f"--{key}={text}"))


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key of nested lists and objects."""
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield data, key
            yield from _places(data[key])


def _change(rng: random.Random, holder: Any, key: Any) -> None:
    kind = rng.randrange(5)
    is_number = isinstance(holder[key], int | float)
    if is_number and rng.random() < 0.5:
        holder[key] = holder[key] * rng.choice((-1, 0, 0.5, 2, 3, 1e9))
    elif kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif kind == 2 and isinstance(holder, dict):
        holder[rng.choice(TEXTS)] = holder.pop(key)
    else:
        holder[key] = value(rng)
