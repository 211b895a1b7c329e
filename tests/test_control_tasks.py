"""Other people's environments as tasks of the control recipes, through the real command line."""

import json
import math
from pathlib import Path

import pytest
from safetensors.torch import load_file

from lookact.cli import main

VLA = (
    "--env.max_steps=6 --learn.rollout_steps=6 --learn.num_envs=2 --learn.critic_warmup=0 --learn.workers=1 "
    "--evaluation.workers=1 --evaluation.episodes=1 --evaluation.final_episodes=0 --evaluation.videos=0"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def metrics(run: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_vla_ppo_learns_from_scratch_in_a_foreign_environment_and_goes_on(capsys):
    begin = ["train", "vla-ppo", "--task", "dot_env:Dot", "--preset", "debug", *VLA.split(), "--name", "dot"]
    assert main([*begin, "--learn.iterations", "1"]) == 0
    run = Path("runs/vla-ppo/dot")
    first = load_file(run / "checkpoint-1/model.safetensors")
    assert main(["train", str(run), "--learn.iterations", "2"]) == 0
    second = load_file(run / "checkpoint-2/model.safetensors")
    # tiny encoders that nothing has trained learn with the rest
    moved = {name.partition(".")[0] for name, weight in second.items() if (weight != first[name]).any()}
    assert "vision_encoder" in moved
    for line in metrics("runs/vla-ppo/dot"):
        assert math.isfinite(line["loss/policy"])
        assert line["optim/steps"] >= 1
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "2", "--evaluation.workers", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2
    assert main(["collect", "vla-ppo", "--task", "dot_env:Dot", "--demos", "1", "--out", "demos"]) == 2
    assert "dot_env:Dot has no scripted expert to collect from" in capsys.readouterr().err
    assert main([*begin[:-1], "clone", "--stage", "bc"]) == 2
    assert "has no expert to clone: give --bc.dataset a LeRobot folder, or use stage ppo" in capsys.readouterr().err


@pytest.mark.slow
def test_pref_sac_takes_steps_in_a_mujoco_environment(capsys):
    words = ["--preset", "debug", "--judge.kind", "oracle", "--env.horizon", "10", "--evaluation.final_episodes", "1"]
    assert main(["train", "pref-sac", "--task", "Reacher-v5", *words, "--name", "reacher", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    # ten steps of minus a distance below 0.5 and a small cost of actions
    assert -10 < result["random"]["episode_return"] < 0
    assert metrics("runs/pref-sac/reacher")[-1]["loss/critic"] > 0
    assert main(["train", "pref-sac", "--task", "dot_env:Dot", *words[:4], "--env.horizon", "200"]) == 1
    assert "Dot ended itself after" in capsys.readouterr().err


@pytest.mark.slow
def test_world_duel_takes_steps_where_one_picture_serves_both_cameras(capsys):
    words = ["--preset", "debug", "--env.num_envs", "2", "--teacher.episodes", "2", "--adversarial.episodes", "0"]
    words += ["--student.iterations", "1", "--adversarial.iterations", "1", "--evaluation.episodes", "2"]
    words += ["--teacher.batch_size", "2"]
    assert main(["train", "world-duel", "--task", "dot_env:EndlessDot", *words, "--name", "dot", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"teacher", "student", "adversarial"}
    assert [line["step"] for line in metrics("runs/world-duel/dot")] == [1, 2, 3, 4]
    assert all(math.isfinite(line["loss/policy"]) for line in metrics("runs/world-duel/dot")[2:])


@pytest.mark.learn
def test_vla_ppo_masters_a_foreign_environment_from_scratch(capsys):
    words = [
        "--preset=debug",
        "--env.max_steps=20",
        "--learn.rollout_steps=20",
        "--learn.num_envs=16",
        "--learn.lr=1e-3",
    ]
    words += ["--learn.critic_warmup=0", "--ppo.gamma=0.95", "--learn.iterations=40", "--learn.workers=1"]
    words += ["--evaluation.every=40", "--evaluation.final_episodes=40", "--evaluation.workers=1"]
    words += ["--evaluation.videos=0", "--json"]
    assert main(["train", "vla-ppo", "--task", "dot_env:Dot", *words]) == 0
    result = json.loads(capsys.readouterr().out)
    # 11 of 100 before and 100 of 100 after where it was first measured
    assert result["before"]["greedy"]["success_rate"] < 0.5
    assert result["after"]["greedy"]["success_rate"] > 0.8
