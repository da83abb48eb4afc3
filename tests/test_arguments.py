"""Texts such as 'nmt:layers=4,steps=30'."""

import re

import pytest

from placement import arguments
from placement.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resnet50,nmt:layers=2,steps=30, rnnlm", ("resnet50", "nmt:layers=2,steps=30", "rnnlm")),
        ("synthetic:ops=9,seed=1,a/b=c.xml", ("synthetic:ops=9,seed=1", "a/b=c.xml")),
        ("", ()),
        ("a:x={1,2},y={3,4},b", ("a:x=1,y=3", "a:x=1,y=4", "a:x=2,y=3", "a:x=2,y=4", "b")),
        ("models/{one}.onnx", ("models/{one}.onnx",)),
    ],
)
def test_lists_keep_arguments(text, expected):
    assert arguments.split_list(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bert:layers=2,heads=4", ("bert", ":layers=2,heads=4")),
        (r"C:\models\m.onnx", (r"C:\models\m.onnx", "")),
        ("a:b=c/w.json:parts=2", ("a:b=c/w.json", ":parts=2")),
    ],
)
def test_paths_may_have_colons(text, expected):
    assert arguments.split_name(text) == expected


DEFAULTS = {"size": 8, "rate": 0.5, "aligned": True, "kind": "a", "levels": 1}


def convert(text: str) -> dict:
    name, texts = arguments.split_arguments(text, "method")
    assert name == "m"
    return arguments.convert_arguments(text, texts, DEFAULTS, minimums={"levels": 0}, kind="method")


def test_values_are_converted():
    values = convert("m:size=12,rate=1e-3,aligned=false,kind=b+c,levels=0")
    assert values == {"size": 12, "rate": 1e-3, "aligned": False, "kind": "b+c", "levels": 0}
    assert convert("m:rate=inf") == DEFAULTS | {"rate": float("inf")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m:size=0", "gives size as '0'; set a whole number of at least 1"),
        ("m:rate=fast", "gives rate as 'fast'; could not convert"),
        ("m:aligned=1", "set True or False"),
        ("m:colour=red", "unknown argument 'colour'; valid arguments and their defaults: size=8"),
        ("m:size", "malformed argument 'size'"),
        ("m:size=1,size=2", "gives argument 'size' twice"),
    ],
)
def test_wrong_arguments_are_refused(text, message):
    with pytest.raises(UserError, match=f"^method {text!r}.*{message}[^\n]*$"):
        convert(text)


def test_similar_values_are_suggested():
    error = arguments.make_choice_error("method", "hsdg:levels=1", ("hsdag", "lns"))
    assert str(error) == "unknown method 'hsdg:levels=1': did you mean 'hsdag'? valid: hsdag, lns"
    message = "unknown kind 'warp' in devices 'cpu,warp'; valid: cpu, gpu"
    with pytest.raises(UserError, match=f"^{message}$"):
        arguments.check_choice("kind", "warp", ("cpu", "gpu"), context="devices 'cpu,warp'")
    with pytest.raises(UserError, match=r"^seed=-1 is out of range; set at least 0$"):
        arguments.check_range("seed", -1, 0)
    arguments.check_range("seed", 0, 0)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("6GB", 6_000_000_000), ("1.5 mb", 1_500_000), ("2KiB", 2048), ("17B", 17)],
)
def test_sizes_have_units(text, num_bytes):
    assert arguments.parse_bytes(text, "devices") == num_bytes


@pytest.mark.parametrize("text", ["", "6", "-1GB", "0.5B", "6TB"])
def test_wrong_sizes_are_refused(text):
    message = re.escape(
        f"{text!r} in devices 'CPU' is not a size of a memory; set a number above 0"
    )
    with pytest.raises(UserError, match=message):
        arguments.parse_bytes(text, "devices 'CPU'")
