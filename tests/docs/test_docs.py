"""The documentation runs: every block of code, and every command at least as far as its settings.

The commands of `RUN` run as written but with less to do; of all others the flags and the settings
are checked. Blocks of one page run in order in one directory; pages that measure share theirs. A
block of `text exact` is what the block before it prints, and one of `text output` the same but for
its numbers, with '...' for any lines; other blocks of text are not run.
"""

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.reader import Reader

# The work directories of the commands that run, with flags that are appended to these commands, so
# that all of them together take seconds.
_SMALLER = ("--config.budget=64", "--config.time_limit_s=1", "--config.measure_s=0.2")
_TINY = "synthetic:family=layered,ops=12,seed=1"
_ONE_METHOD = ("--config.methods=hetero", "--config.seeds=1")
RUN = {
    "runs/mine": _SMALLER,
    "runs/predicted": _SMALLER,
    "runs/advise": (*_SMALLER, "--config.graph=model.onnx"),
    "runs/two_stream": (*_SMALLER, "--config.graph=model.onnx"),
    "runs/compare": (*_SMALLER, f"--config.graphs={_TINY}", "--config.seeds=1"),
    "runs/compared": (*_SMALLER, f"--config.graph={_TINY}", "--config.methods=heft,placeto,search"),
    "runs/hsdag": (*_SMALLER, f"--config.graph={_TINY}", "--config.budget=160"),
    "runs/reproduced": (*_SMALLER, "--config.graphs=bert:layers=1,hidden=8,heads=1", *_ONE_METHOD),
    "runs/pretrain": (*_SMALLER, "--config.families=chain", "--config.members=2"),
    "runs/unseen": (*_SMALLER, f"--config.graphs={_TINY}", "--config.seeds=1"),
}

# Smaller images, a smaller graph, quick methods and shorter measurements in the code of the pages.
SMALLER_CODE = {
    **{"64, 64": "16, 16", "8,3,64,64": "8,3,16,16", "layered,ops=40,": "layered,ops=12,"},
    **{'["hsdag", "heft", "random"]': '["heft", "random"]'},
    **{'"hsdag", budget=1_600': '"scheduler:hidden_size=4,num_samples=4", budget=16'},
    "runs/model": "runs/mine",
    **{"time_limit_s=5.0, measure_s=2.0": "time_limit_s=1.0, measure_s=0.2"},
}

# These follow one another: the tutorial makes the model and the run that the others go on with.
MEASURING = ["docs/TUTORIAL.md", "README.md", "docs/HSDAG.md"]
MEASURING += ["docs/DEPLOY.md", "docs/COMMANDS.md", "docs/EXPERIMENTS.md"]


@pytest.mark.alone
def test_measuring_pages_run(tmp_path):
    reader = Reader(tmp_path, RUN, SMALLER_CODE)
    for page in MEASURING:
        reader.follow(page)
    made = {path.name + "/" * path.is_dir() for path in tmp_path.rglob("runs/**/*")}
    tables = [rows for page in MEASURING for rows in pages.tables(page) if rows[0][0] == "file"]
    named = [name for rows in tables for row in rows[1:] for name in row[0].split(",")]
    assert len(tables) == 2
    assert {name.strip("` ") for name in named} <= made
    printed = (tmp_path / "runs/mine/report.md").read_text().splitlines()
    # On a fast processor the latencies are in microseconds.
    headers = [[cell.replace(" us", " ms") for cell in pages.cells(line)] for line in printed]
    *_, shown = [rows[0] for rows in pages.tables("README.md") if "predicted ms" in rows[0]]
    assert any({*shown} <= {*header} for header in headers)


def test_commands_of_guides_run():
    """No command of these pages is only checked."""
    for page in ("README.md", "docs/TUTORIAL.md", "docs/HSDAG.md", "docs/POLICIES.md"):
        for block in pages.blocks(page):
            for words in pages.commands(block) if block.language == "sh" else ():
                workdirs = {word.removeprefix("--workdir=") for word in words}
                assert words[0] == "make" or workdirs & {*RUN}, f"{block}: {words}"


def test_other_pages_run(tmp_path):
    for page in pages.PAGES:
        if page not in MEASURING:
            directory = tmp_path / Path(page).stem
            directory.mkdir()
            Reader(directory, RUN, SMALLER_CODE).follow(page)
