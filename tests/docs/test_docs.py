"""The documentation runs: every command and every block of code, as written but with less to do.

Blocks of one page run in order in one directory; pages that measure share theirs. A block of `text
exact` is what the block before it prints, and one of `text output` the same but for its numbers,
with '...' for any lines. All that is not as written stands in the tables here.
"""

import importlib
import json
from pathlib import Path

import pytest

from placement import arguments
from placement.pipeline import method_runs
from placement.runtime import scotch
from tests.docs import pages
from tests.docs.reader import Reader

# Appended to every command that has a configuration, so that all of them together take seconds.
SMALLER = (
    *("--config.budget=64", "--config.time_limit_s=1"),
    "--config.measure_s=0.2",
)
_TINY = "synthetic:family=layered,ops=12,seed=1"
_PROFILED = "--config.costs=runs/mine/profile.json"
_FEW_GRAPHS = ("--config.families=chain", "--config.members=1", "--config.budget=1")
_SMALL_HSDAG = "hsdag:variant=untrained,uniform=0,hidden_size=4,num_samples=4"
# Appended too, by the command's work directory. As many evaluations as devices let every learned
# method be made and start, but take no step, which it would have to compile for seconds.
OTHERWISE = {
    "runs/large_methods": (f"--config.graphs={_TINY}", "--config.budget=3"),
    "runs/serial": (f"--config.graphs={_TINY}", "--config.budget=2"),
    "runs/solve": (f"--config.graph={_TINY}",),
    "runs/large": (f"--config.graph={_TINY}", "--config.budget=3"),
    "runs/search": (f"--config.graph={_TINY}", "--config.budget=3"),
    "runs/training": (
        *("--config.graphs=rnnlm:steps=2,training=1", "--config.budget=3"),
        "--config.methods=human_expert,heft",
    ),
    "runs/elsewhere": ("--config.budget=16",),
    "runs/cluster": (
        *("--config.budget=16", "--config.measure_on=here"),
        *("--config.devices=auto", _PROFILED, "--config.method=random"),
    ),
    "runs/pretrain": (*_FEW_GRAPHS, "--config.method=scheduler:hidden_size=4,num_samples=4"),
    **dict.fromkeys(
        ("runs/pretrain_hsdag", "runs/pretrain_max_load"),
        (*_FEW_GRAPHS, f"--config.method={_SMALL_HSDAG}"),
    ),
    "runs/unseen": (f"--config.graphs={_TINY}", "--config.methods=zero_shot"),
    # Few methods: the names of the others are checked with the tables. `hetero` asks OpenVINO.
    "runs/reproduce_hierarchical": (
        *(f"--config.graphs={_TINY}", "--config.seeds=1", "--config.budget=3"),
        "--config.methods=scotch,hierarchical",
    ),
    "runs/reproduce_hsdag": (
        *(f"--config.graphs={_TINY}", "--config.devices=roofline:cpu,gpu", "--config.seeds=1"),
        *("--config.methods=placeto,hsdag", "--config.budget=2"),
    ),
    # One method learns: what it leaves is compared with the README's list of files.
    "runs/compare": (f"--config.graphs={_TINY}", "--config.seeds=1"),
    # All methods: `tests/pipeline/tasks/test_compare.py`.
    **dict.fromkeys(
        ("runs/ablation", "runs/specifications", "runs/sweep"),
        (f"--config.graphs={_TINY}", "--config.seeds=2", "--config.methods=random,heft"),
    ),
    # On the tutorial's model, which is profiled already.
    "runs/two_stream": (
        *("--config.graph=model.onnx", "--config.devices=auto", _PROFILED),
        "--config.evaluate=simulate",  # the tutorial's command measures the same
    ),
    "runs/measured": (
        *("--config.graph=model.onnx", "--config.devices=auto", _PROFILED),
        "--config.budget=16",
    ),
    "runs/decoder": (
        "--config.graph=decoder:layers=1,hidden=32,heads=2,vocabulary=200,context=64",
        "--config.input_shapes=ids:1,1",
        *("--config.budget=10", "--config.time_limit_s=0.5", "--config.measure_s=0.1"),
    ),
    "runs/advise": ("--config.graph=model.onnx", "--config.devices=auto"),
    "runs/profile": (
        *("--config.graph=model.onnx", "--config.devices=auto", "--workdir=runs/mine"),
        "--config.budget=16",
    ),
}

# Smaller images, a smaller graph and shorter measurements in the code of the pages.
SMALLER_CODE = {
    **{"64, 64": "16, 16", "8,3,64,64": "8,3,16,16"},
    **{"layered,ops=40,": "layered,ops=12,", "num_samples=16": "num_samples=4"},
    **{"time_limit_s=5.0, measure_s=2.0": "time_limit_s=1.0, measure_s=0.2"},
}

# Blocks that nothing can run, by their first line.
NOT_RUN = {
    "python -m experiments.main --config=hsdag --workdir=runs/many \\": "it is for several hosts",
    "runtime: devices, clocks  |  the core: arrays in, arrays out            |  reporting: files": (
        "a picture"
    ),
    "types -> graphs -> costs -> simulators -> instance -> analysis, policies, solvers -> "
    "learning, search -> methods -> pipeline -> cli": "a formula",
    "devices, errors -> models -> execution -> measurement -> deployment, cluster": "a formula",
    "ray start --head --port=6379": "machines that a test has not",
    "python -m experiments.main --config.graph=model.onnx --config.devices=precisions \\": (
        "it is for processors with bf16"
    ),
    "python -m experiments.main --config=configs/quickstart.py --config.graph=model.onnx \\": (
        "it is for machines with a GPU"
    ),
    "python -m experiments.main --config=configs/quickstart.py --config.graph=resnet50 \\": (
        "it takes minutes; tests/pipeline/tasks/test_memory.py runs a smaller model"
    ),
    "python -m experiments.main --config=configs/quickstart.py --config.graph=two_stream \\": (
        "it takes minutes; a test of pretraining runs a smaller model"
    ),
    "python -m experiments.main --config=configs/reproduce_hierarchical.py --task=compare \\": (
        "it takes half an hour"
    ),
    "pip install -e '.[gpu]'": "it is for machines with a GPU",
    "tensorboard --logdir=runs/watched/tensorboard": "TensorBoard is not installed",
    'placement place model.onnx --input-shapes "images:1,3,224,224;ids:1,128"': "an example",
    "host left out: lab3: processor Intel(R) Core(TM) Ultra 7 155H, not Intel(R) Core(TM) Ultra 7"
    " 258V": "an example",
    "python -m experiments.suite list": "tests of the command run it",
    "python -m experiments.tables audit": "it takes hours; tests of the audit run a part",
    "python -m experiments.examples.ppo": "tests of the examples run them",
    "cd runs/mine/deploy": "a test of the loader compiles and runs it",
    "refused on the devices here:": "an example",
    'placement place dyn.xml --input-shapes "image:4,3,32,32" --devices host': "an example",
    "server_cpu: 0.181 of the peak, 367 us to launch": "held by a test of the benchmark",
    "compute_s = launch_s + max(flops / flop_per_s[class], moved_bytes / bytes_per_s)": "a formula",
}

# What a page needs that no package brings: a function that tells what is missing, or None.
NEEDS = {"docs/REPRODUCTION.md": scotch.describe_missing}

# These follow one another: the tutorial makes the model and the run that the others go on with.
MEASURING = (
    *("docs/TUTORIAL.md", "README.md", "docs/DEPLOY.md"),
    *("docs/EXPERIMENTS.md", "docs/CONCURRENT.md", "docs/CLUSTER.md", "docs/SEARCH.md"),
)
# Files that a page takes for granted: four operations in a row, an accelerator that holds two.
_WORKLOAD = {
    "maxSizePerFPGA": 2,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [{"id": i, "cpuLatency": 10, "fpgaLatency": 1, "size": 1} for i in range(4)],
    "edges": [{"sourceId": i, "destId": i + 1, "cost": 0.5} for i in range(3)],
}
GIVEN = {"workload.json": json.dumps(_WORKLOAD)}


def _reader(directory: Path) -> Reader:
    for name, text in GIVEN.items():
        (directory / name).write_text(text)
    return Reader(directory, SMALLER, OTHERWISE, NOT_RUN, SMALLER_CODE)


@pytest.mark.alone
def test_pages_that_measure_run_and_leave_the_files_that_they_name(tmp_path):
    reader = _reader(tmp_path)
    for page in MEASURING:
        reader.follow(page)
    made = {path.name + "/" * path.is_dir() for path in tmp_path.rglob("runs/**/*")}
    named = _first_column("README.md", "file") | _first_column("docs/DEPLOY.md", "file")
    assert named <= made
    printed = (tmp_path / "runs/mine/report.md").read_text().splitlines()
    # On a fast processor the latencies are in microseconds.
    headers = [[cell.replace(" us", " ms") for cell in pages.cells(line)] for line in printed]
    for page in ("README.md", "docs/TUTORIAL.md"):
        (shown,) = [rows[0] for rows in pages.tables(page) if "predicted ms" in rows[0]]
        assert shown in headers


@pytest.mark.parametrize("page", [page for page in pages.PAGES if page not in MEASURING])
def test_pages_that_simulate_run(page, tmp_path):
    missing = NEEDS[page]() if page in NEEDS else None
    if missing:
        pytest.skip(missing)
    _reader(tmp_path).follow(page)


def test_commands_run_on_processors_without_bf16():
    shell = [block for page in pages.PAGES for block in pages.blocks(page)]
    commands = [
        words for block in shell if block.language == "sh" for words in pages.commands(block)
    ]
    assert len(commands) > 20
    assert [words for words in commands if any("bf16" in word for word in words)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\npython -m experiments.main --task=plaice\n```", "plaice"),
        ("```sh\nmake cake\n```", "cake"),
        ("```sh\nrm -r runs\n```", "no command"),
        ("    make cake", "cake"),
        ("```python\n1 / 0\n```", "page.md:2"),
        ("```python\nprint(1)\n```\n\n```text exact\n2\n```", "not what is printed"),
        ("```python\nprint('a 1')\n```\n\n```text output\nb 1\n```", "not what is printed"),
        ("```text\na formula\n```", "page.md:2 is not run"),
    ],
)
def test_a_block_that_does_not_do_what_the_page_says_is_noticed(text, said, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(f"{text}\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    reader = Reader(tmp_path, SMALLER, OTHERWISE, NOT_RUN, {})
    pages.tokens.cache_clear()
    with pytest.raises(AssertionError, match=said):
        reader.follow("page.md")


def test_numbers_and_widths_of_output_may_differ_and_lines_be_left_out(tmp_path, monkeypatch):
    code = "```python\nprint('method   ms')\nprint('lns  1.5', 'x', 'b 2', sep='\\n')\n```"
    (tmp_path / "page.md").write_text(
        f"{code}\n\n```text output\nmethod us\nlns 27.1\n...\nb 3\n```"
    )
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    pages.tokens.cache_clear()
    Reader(tmp_path, SMALLER, OTHERWISE, NOT_RUN, {}).follow("page.md")


def test_every_row_of_the_tables_here_is_of_a_block():
    blocks = [block for page in pages.PAGES for block in pages.blocks(page)]
    shell = [block for block in blocks if block.language in ("sh", pages.INDENTED)]
    words = {word for block in shell for words in pages.commands(block) for word in words}
    assert {f"--workdir={workdir}" for workdir in OTHERWISE} <= words
    assert set(NOT_RUN) <= {block.text.splitlines()[0].strip() for block in blocks}
    assert {*NEEDS, *MEASURING} <= set(pages.PAGES)


_PLANNED = ["reproduce_hierarchical", "reproduce_hsdag"]
_ABLATION = ["ablation"]
_ASKED = ["specifications"]


@pytest.mark.parametrize("workdir", [*_PLANNED, *_ABLATION, *_ASKED])
def test_tables_of_methods_have_each_method_of_the_command(workdir):
    page = "docs/QUESTIONS.md" if workdir in _ASKED else "docs/REPRODUCTION.md"
    written = [words for block in pages.blocks(page) for words in pages.commands(block)]
    (flags,) = [words for words in written if f"--workdir=runs/{workdir}" in words]
    given = dict(flag.split("=", 1) for flag in flags if "=" in flag)
    config = importlib.import_module(f"configs.{Path(given['--config']).stem}")
    chosen = arguments.split_list(given.get("--config.methods", config.get_config().methods))
    for method in chosen:
        method_runs.check(method, given.get("--config.objective", config.get_config().objective))
    if workdir in _PLANNED:
        listed = ["graph", "best single device", *chosen]
        headers = [rows[0] for rows in pages.tables(page)]
        assert any(header[: len(listed)] == listed and "reduction" in header for header in headers)
    else:
        listed = {f"`{method}`" for method in (*chosen, "best single device")}
        assert listed in [{row[0] for row in rows[1:]} for rows in pages.tables(page)]


def _first_column(page: str, header: str) -> set[str]:
    """What stands `between backquotes` in the first column of a page's tables with this header."""
    found = [rows[1:] for rows in pages.tables(page) if rows[0][0] == header]
    return {name.strip("` ") for rows in found for row in rows for name in row[0].split(",")}
