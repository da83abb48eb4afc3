import pytest

from placement import arguments
from placement.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resnet50, bert_base", ("resnet50", "bert_base")),
        ("resnet50,nmt:layers=2,steps=30,rnnlm", ("resnet50", "nmt:layers=2,steps=30", "rnnlm")),
        ("synthetic:ops=9,seed=1,a/b=c.xml", ("synthetic:ops=9,seed=1", "a/b=c.xml")),
        ("", ()),
        ("a:x={1,2},y=3,b", ("a:x=1,y=3", "a:x=2,y=3", "b")),
        ("a:x={1,2},y={3,4}", ("a:x=1,y=3", "a:x=1,y=4", "a:x=2,y=3", "a:x=2,y=4")),
        ("models/{one}.onnx", ("models/{one}.onnx",)),
    ],
)
def test_lists_keep_arguments(text, expected):
    assert arguments.split_list(text) == expected


DEFAULTS = {"size": 8, "rate": 0.5, "aligned": True, "kind": "a", "levels": 1}


def _values(text: str) -> dict:
    name, given = arguments.split_arguments(text, "method")
    assert name == "m"
    return arguments.convert_arguments(text, given, DEFAULTS, minimums={"levels": 0}, kind="method")


def test_values_are_converted():
    chosen = _values("m:size=12,rate=1e-3,aligned=false,kind=b+c,levels=0")
    assert chosen == {"size": 12, "rate": 1e-3, "aligned": False, "kind": "b+c", "levels": 0}
    assert _values("m:rate=inf")["rate"] == float("inf")
    assert _values("m") == DEFAULTS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m:size=0", "gives size as '0'; set a whole number of at least 1"),
        ("m:size=many", "set a whole number"),
        ("m:rate=fast", "gives rate as 'fast'; could not convert"),
        ("m:aligned=1", "set True or False"),
        ("m:colour=red", "unknown argument 'colour'; valid arguments and their defaults: size=8"),
        ("m:size", "malformed argument 'size'"),
        ("m:size=1,size=2", "gives argument 'size' twice"),
    ],
)
def test_errors_list_the_valid_values(text, message):
    with pytest.raises(UserError, match=message) as error:
        _values(text)
    assert str(error.value).startswith(f"method {text!r}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("hsdagg", "unknown method 'hsdagg': did you mean 'hsdag'? valid: hsdag, lns"),
        (
            "hsdg:levels=1",
            "unknown method 'hsdg:levels=1': did you mean 'hsdag'? valid: hsdag, lns",
        ),
        ("magic", "unknown method 'magic'; valid: hsdag, lns"),
    ],
)
def test_similar_values_are_suggested(value, message):
    assert str(arguments.make_choice_error("method", value, ("hsdag", "lns"))) == message


def test_errors_name_the_context():
    with pytest.raises(UserError) as error:
        arguments.check_choice("kind", "gpuu", ("cpu", "gpu"), context="devices 'cpu,gpuu'")
    message = "unknown kind 'gpuu' in devices 'cpu,gpuu': did you mean 'gpu'? valid: cpu, gpu"
    assert str(error.value) == message
    arguments.check_choice("kind", "gpu", ("cpu", "gpu"))


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("6GB", 6_000_000_000),
        ("1.5 MB", 1_500_000),
        ("40mb", 40_000_000),
        ("2KiB", 2048),
        ("1GiB", 2**30),
        ("17B", 17),
    ],
)
def test_sizes_have_units(text, num_bytes):
    assert arguments.parse_bytes(text, "devices") == num_bytes


@pytest.mark.parametrize("text", ["", "6", "-1GB", "0.5B", "6TB"])
def test_wrong_sizes_are_refused(text):
    with pytest.raises(UserError) as error:
        arguments.parse_bytes(text, "devices 'CPU'")
    assert str(error.value) == (
        f"{text!r} in devices 'CPU' is not a size of a memory; set a number above 0 with a unit "
        "(KB, MB, GB, KiB, MiB, GiB), such as 6GB"
    )
