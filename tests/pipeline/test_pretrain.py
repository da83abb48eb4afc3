"""A policy is trained on other graphs, or in the simulator, and continues from there."""

import json
from pathlib import Path

import pytest

from configs import pretrain
from placement.methods import pretrained
from tests.experiments.command import check_summary, run

# Graphs of one small size on two devices: one compilation.
SMALL = ("--config.families=chain", "--config.members=2", "--config.devices=roofline:cpu,gpu")
TINY = "scheduler:num_samples=4,hidden_size=4,episode_steps=2"
UNSEEN = "synthetic:family=layered,ops=12,seed=1"


def test_pretrained_policy_places_unseen_graph(tmp_path: Path) -> None:
    learning = tmp_path / "pretrain"
    flags = ["--task=pretrain", *SMALL, f"--config.method={TINY}"]
    code, out, err = run(learning, *flags, "--config.budget=64", config="pretrain")
    assert code == 0, err
    assert pretrained.FILE in out
    first = json.loads((learning / "pretraining.json").read_text())
    assert len(first["graphs"]) == 2
    assert all("chain" in text for text in first["graphs"])
    assert (first["status"], first["evaluations"]) == ("finished", 64)

    code, _, err = run(learning, *flags, "--config.budget=128", config="pretrain")
    assert code == 0, err
    second = json.loads((learning / "pretraining.json").read_text())
    assert second["updates"] == 2 * first["updates"] > 0
    records = [json.loads(line) for line in (learning / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == list(range(1, second["updates"] + 1))

    placing = tmp_path / "unseen"
    checkpoint = f"--config.init_from={learning / pretrained.FILE}"
    flags = [f"--config.graph={UNSEEN}", "--config.devices=roofline:cpu,gpu,gpu", checkpoint]
    flags.append("--config.search_anyway=True")
    code, _, err = run(placing, *flags, "--config.method=zero_shot", config="pretrain")
    assert code == 0, err
    rows = {row["method"]: row for row in check_summary(placing)["rows"]}
    assert rows["zero_shot"]["evaluations"] == 6 * 256
    assert rows["zero_shot"]["predicted_s"] <= rows["random"]["predicted_s"]


def test_installed_policy_matches_configuration():
    config = pretrain.get_config()
    made = json.loads(pretrained.SHIPPED.with_name("pretraining.json").read_text())
    assert made["families"] == config.families
    assert ";".join(made["devices"]) == config.devices
    assert (made["evaluations"], made["status"]) == (config.budget, "finished")
    assert pretrained.method_of(pretrained.SHIPPED) == config.method


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--task=pretrain", "--config.families=moon"], ["moon", "layered"]),
        (["--task=pretrain", "--config.members=0"], ["members=0"]),
        (
            ["--task=pretrain", "--config.method=colocrl"],
            ["colocrl", "valid: scheduler"],
        ),
        (
            ["--task=pretrain", "--config.objective=serial", "--config.method=scheduler"],
            ["serial", "makespan"],
        ),
        (["--config.method=zero_shot", "--config.init_from=nowhere"], ["nowhere", "pretrain"]),
        (
            ["--config.method=scheduler:hidden_size=3", f"--config.init_from={pretrained.SHIPPED}"],
            [pretrained.FILE, "and should be (", "scheduler:hidden_size=3"],
        ),
    ],
)
def test_mistakes_are_one_line(flags: list[str], words: list[str], tmp_path: Path) -> None:
    tiny = ["--config.graph=synthetic:ops=9", "--config.devices=roofline:cpu,gpu"]
    tiny.append("--config.search_anyway=True")
    code, _, err = run(tmp_path / "run", *tiny, *flags, config="pretrain")
    assert code == 2, err
    (line,) = [line for line in err.splitlines() if "xla_bridge" not in line]
    assert line.startswith("error: ")
    assert all(word in line for word in words)
