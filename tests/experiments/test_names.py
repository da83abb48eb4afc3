"""Names are data: whatever characters they hold, tasks succeed and print no control characters."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import openvino as ov
from openvino import opset13 as ops

import placement
from placement.reporting import printable
from tests.experiments.command import run

NAMES = (
    *("a\x01b", "new\nline", "cr\rtab\t", "p|q", "[red]x[/red]", "\x1b[31mred\x1b[0m", "\x7f\x85"),
    *('`tick` *star* <b>&amp;"q"\'', "$x^$", "\u2028\u202e", "</script><!--", "\ufffe", "=1+1"),
)
TENSOR = "t\x03ensor|[b]"
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff\ufffe]")


def odd_model(file: Path) -> None:
    """Writes a chain of products with these names."""
    source = ops.parameter([4, 8], np.float32, name="in\x02put\n|[b]")
    source.output(0).set_names({TENSOR})
    value = source
    for i, name in enumerate(NAMES):
        matrix = np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32) / 3
        value = ops.matmul(value, ops.constant(matrix, name=f"m{name}"), False, False, name=name)
    model = ov.Model([ops.result(value, name="out\x1b[2J")], [source], "mod\x01el|[red]")
    ov.save_model(model, file, compress_to_fp16=False)


def odd_workload(file: Path) -> None:
    """Writes a chain with these names, and one that UTF-8 cannot encode."""
    nodes = [
        {"id": i, "name": name, "cpuLatency": 10 + i, "fpgaLatency": 4, "size": 10}
        for i, name in enumerate([*NAMES, "lone\ud800"])
    ]
    edges = [{"sourceId": i, "destId": i + 1, "cost": 1} for i in range(len(nodes) - 1)]
    data = {"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 100, "nodes": nodes, "edges": edges}
    file.write_text(json.dumps(data))


def check_what_people_see(workdir: Path, *streams: str) -> None:
    shown = {path.name: path.read_text("utf-8") for path in workdir.rglob("*.md")}
    shown |= {path.name: path.read_text("utf-8") for path in workdir.rglob("*.csv")}
    shown |= {str(i): stream for i, stream in enumerate(streams)}
    for name, text in shown.items():
        assert not UNPRINTABLE.search(text), name
    for drawing in workdir.rglob("figures/*.svg"):
        ElementTree.fromstring(drawing.read_bytes())
    page = (workdir / "report.html").read_text("utf-8")
    assert not UNPRINTABLE.search(page.replace("\t", ""))
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    shown_names = json.loads(found[1])["ops"]["name"]
    assert set(map(printable.text, NAMES)) <= set(shown_names)


def test_odd_names_are_deployed(tmp_path: Path) -> None:
    file, workdir = tmp_path / "model.xml", tmp_path / "run"
    odd_model(file)
    flags = [f"--config.graph={file}", "--config.devices=host", "--config.measure_s=0.2"]
    options = ["--config.method=random", "--config.budget=4"]
    code, out, err = run(workdir, *flags, *options, plots=True)
    assert code == 0, err
    check_what_people_see(workdir, out, err)
    placed = json.loads((workdir / "placement.json").read_text())["placement"]
    assert set(NAMES) <= set(placed)
    shown = ElementTree.fromstring((workdir / "placed.xml").read_bytes())
    device = {
        layer.get("name"): layer.find("data").get("device")
        for layer in shown.findall("layers/layer")
        if layer.get("type") == "MatMul"
    }
    in_xml = {"p|q": "p|q", "a\x01b": "a\\x01b", "new\nline": "new\nline", "\ufffe": "\\ufffe"}
    for name, written in in_xml.items():
        assert device[written] == placed[name]

    code, out, err = run(workdir, "--task=deploy", *flags)
    assert code == 0, err
    check_what_people_see(workdir, out, err)
    image = np.ones((4, 8), np.float32)
    with placement.load(workdir / "deploy") as net:
        (output,) = net.infer({TENSOR: image})
    wanted = ov.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(image)[0]
    np.testing.assert_allclose(output, wanted, atol=0.1 * np.ptp(wanted))


def test_odd_workloads_are_placed(tmp_path: Path) -> None:
    file, workdir = tmp_path / "w[red]|\x1b[31m$.json", tmp_path / "run"
    odd_workload(file)
    flags = [f"--config.graph={file}", "--config.objective=max_load"]
    code, out, err = run(workdir, *flags, "--config.method=ideals_dp", plots=True)
    assert code == 0, err
    assert "w[red]|\\x1b[31m$" in out
    check_what_people_see(workdir, out, err)
    placed = json.loads((workdir / "placement.json").read_text())["placement"]
    assert set(placed) == {*NAMES, "lone\ud800"}
    assert json.dumps("lone\\ud800").strip('"') in (workdir / "trace.json").read_text()


def test_names_must_be_text(tmp_path: Path) -> None:
    file = tmp_path / "model.xml"
    odd_model(file)
    file.write_bytes(file.read_bytes().replace(b'name="p|q"', b'name="p\xff\xed\xa0\x80q"'))
    code, _, err = run(tmp_path / "run", f"--config.graph={file}", "--config.devices=host")
    assert code == 2
    assert "has names that are not UTF-8" in err
    assert len(err.strip().splitlines()) == 1
    code, _, err = run(tmp_path / "run", "--config.graph=no\x1b[31mwhere.xml")
    assert code == 2
    assert not UNPRINTABLE.search(err.strip())
