"""world_model-duel on the real SAPIEN: run by `make test-maniskill`."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest

from lookact.recipes.world_duel.config import PRESETS, EnvConfig
from lookact.recipes.world_duel.data import random_actions, record_random
from lookact.recipes.world_duel.f1.environments import make_envs, plan_episodes
from lookact.recipes.world_duel.train import evaluate, main
from lookact.rollout.recording import record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("mani_skill") is None, reason="ManiSkill is absent: `make test-maniskill` runs this"
    ),
]
DEBUG = PRESETS["debug"]
ENV = EnvConfig(name="maniskill", num_envs=2, steps_per_episode=8, distractors=1, scene_reuse=2)


def test_all_phases_run_from_end_to_end(train, tmp_path):
    teacher = replace(DEBUG.teacher, batch_size=2)
    evaluation = replace(DEBUG.evaluation, episodes=2)
    cfg = replace(DEBUG, env=ENV, teacher=teacher, evaluation=evaluation)
    result = train(main, cfg)
    assert set(result) == {"teacher", "student", "adversarial"}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss/world_model"] for line in lines if "loss/world_model" in line]
    assert losses
    assert np.isfinite(losses).all()
    checkpoint = sorted((tmp_path / "run").glob("checkpoint-*"))[-1]
    report = evaluate(cfg, checkpoint=checkpoint, episodes=2, greedy=False, dummy=False, folder=tmp_path)
    assert report["coverage"] >= 1


def test_what_is_recorded_is_what_the_arm_did(tmp_path):
    """Both cameras follow the actions; the same seed records the same, whatever rows and inputs_at came before."""
    first = record_random(ENV, tmp_path / "first", seed=3, split="train", episodes=4)
    again = record_random(ENV, tmp_path / "again", seed=3, split="train", episodes=4)
    for one, other in zip(first, again, strict=True):
        assert one.mask.all()
        assert np.array_equal(one.wrist, other.wrist)
        assert np.array_equal(one.state, other.state)
        assert (one.wrist[:, 1:] != one.wrist[:, :-1]).any(axis=(2, 3, 4)).all()
        turned = np.diff(one.state[:, :, :7], axis=1)
        # the arm lags behind its targets, but each joint goes where it is told
        assert np.corrcoef(turned.ravel(), one.actions[:, :, :7].ravel())[0, 1] > 0.5


def test_processes_of_their_own_show_the_same(tmp_path):
    shown = []
    for workers in (0, 2):
        env = replace(ENV, workers=workers)
        envs = make_envs(env)
        plan = plan_episodes(1, "train", 0, env.scene_reuse)
        shown.append(record(envs, random_actions(env, 1, "train", 0), plan))
        envs.close()
    assert np.array_equal(shown[0].wrist, shown[1].wrist)
    assert np.array_equal(shown[0].head, shown[1].head)
    assert np.array_equal(shown[0].state, shown[1].state)
