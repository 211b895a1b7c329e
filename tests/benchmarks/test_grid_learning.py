import json
import re
from pathlib import Path

import pytest

pytest.importorskip("pygame", reason="needs lookact[grid]")

from benchmarks import grid_learning
from benchmarks.grid_learning import EXPERIMENTS, RECORDS, Expert, command
from lookact.cli.parser import find_command
from lookact.cli.recipes import make_config
from lookact.rollout.collect import collect
from lookact.tasks.grid import minigrid_task
from lookact.tasks.settings import MiniGridConfig
from lookact.training.evaluation import wilson_interval

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_command_of_the_list_is_a_whole_config(experiment, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = command(experiment, 2)
    _, parser = find_command("train")
    arguments, rest = parser.parse_known_args(words[1:])
    cfg = make_config(arguments, rest, parser=parser)
    assert cfg.seed == 2
    assert cfg.evaluation.final_episodes == 200
    if experiment.start:
        assert cfg.model.source.endswith(f"{experiment.start}-seed-2/sft")
        assert (cfg.sft.demonstrations, cfg.vision_pretraining.rooms) == (0, 0)


def test_the_expert_arrives_on_every_start():
    task = minigrid_task(MiniGridConfig())
    envs = [task.make_env() for _ in range(4)]
    report = task.report(collect(task.specs(0, "test", groups=8), envs, Expert(task, envs)))
    assert report["success_rate"] == 1.0


@pytest.mark.parametrize("path", sorted((ROOT / RECORDS).glob("*-seed-*.json")), ids=lambda path: path.stem)
def test_a_record_names_its_command_and_commit_and_its_intervals_are_wilsons(path):
    record = json.loads(path.read_text())
    assert path == ROOT / grid_learning.record_name(record["experiment"], record["seed"])
    assert f"--seed {record['seed']}" in record["command"]
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", record["commit"])  # dirty: explained in the README beside the records
    for when in ("before", "after"):
        for report in record[when].values():
            successes = round(report["success_rate"] * report["episodes"])
            assert report["ci"]["success_rate"] == pytest.approx(wilson_interval(successes, report["episodes"]))
