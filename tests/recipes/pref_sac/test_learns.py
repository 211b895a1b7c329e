"""What pref-sac learns: short runs with a teacher in the VLM's place, and whole runs of the presets, minutes each."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lookact.algorithms.judge_training import REPORT
from lookact.cli import main
from lookact.data.replay import Replay
from lookact.recipes.pref_sac import train as pref_sac
from lookact.recipes.pref_sac.config import PRESETS

SMALL = PRESETS["small"]
NEEDED = 0.7
"""Share of what the true reward brings, above a random policy, that the learned one must bring."""


def trained(tmp_path, preset, seed, name, *words):
    """What a run came to."""
    line = ["train", "pref-sac", "--preset", preset, "--seed", str(seed), "--name", name, "--out", str(tmp_path)]
    assert main([*line, *words]) == 0
    return json.loads((tmp_path / "pref-sac" / name / "result.json").read_text())


@pytest.mark.learn
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("preset", ["small", "arm"])
def test_labels_of_a_served_vlm_teach_nearly_as_well_as_the_true_reward(tmp_path, preset, seed):
    learned = trained(tmp_path, preset, seed, "learned")
    true = trained(tmp_path, preset, seed, "true", "--reward", "true")
    random = learned["random"]["episode_return"]
    gained = (learned["agent"]["episode_return"] - random) / (true["agent"]["episode_return"] - random)
    assert gained >= NEEDED
    assert learned["judge"]["accuracy"] >= 0.85
    assert (tmp_path / "pref-sac" / "learned" / "judge" / REPORT).exists()


@pytest.mark.slow
def test_preferences_alone_teach_the_pendulum_to_rise(train):
    cfg = replace(
        SMALL,
        judge=replace(SMALL.judge, kind="oracle"),
        learn=replace(SMALL.learn, episodes=18),
        evaluation=replace(SMALL.evaluation, every=18, episodes=1, final_episodes=5),
    )
    result = train(pref_sac.main, cfg)
    # hanging down costs about 1000 an episode, random torques 600, standing up from the start 0
    assert result["agent"]["episode_return"] > 0.5 * result["random"]["episode_return"]


@pytest.mark.slow
def test_a_reward_read_from_images_orders_the_replay(train, tmp_path):
    cfg = replace(
        SMALL,
        env=replace(SMALL.env, horizon=30, image_size=48),
        judge=replace(SMALL.judge, kind="oracle"),
        feedback=replace(SMALL.feedback, total=120, pairs_per_round=120, every=1),
        reward_model=replace(SMALL.reward_model, inputs="frame", epochs=15),
        learn=replace(SMALL.learn, episodes=6),
        evaluation=replace(SMALL.evaluation, every=6, episodes=1, final_episodes=1),
    )
    train(pref_sac.main, cfg)
    ring = Replay(capacity=180, state_size=3, action_size=1, frame_shape=(48, 48, 3))
    ring.read(tmp_path / "run" / "checkpoint-6" / "replay")
    scores = ring.slots(np.arange(180)).scores
    ranks = [np.argsort(np.argsort(values)) for values in (ring.rewards.numpy(), scores)]
    assert np.corrcoef(*ranks)[0, 1] > 0.6


def test_the_presets_that_learn_ask_a_judge_that_only_sees_images():
    for preset in ("small", "arm"):
        assert PRESETS[preset].judge.kind == "embedded"
        assert PRESETS[preset].reward == "learned"


@pytest.mark.slow
def test_debug_labels_pairs_fits_a_reward_and_takes_sac_steps(tmp_path):
    trained(tmp_path, "debug", 0, "debug")
    lines = (tmp_path / "pref-sac" / "debug" / "metrics.jsonl").read_text().splitlines()
    second, third, fourth = [json.loads(line) for line in lines[1:]]
    for line in (second, third):
        # a judge that is trained too little gives replies that can't be parsed, and then there is no reward
        assert line["judge/kept"] > 0
        assert line["loss/reward"] > 0
        assert line["reward/std"] > 0
    assert abs(third["rollout/train_return"]) > 0
    for line in (second, third, fourth):
        assert line["loss/critic"] > 0
        assert abs(line["loss/actor"]) > 0
