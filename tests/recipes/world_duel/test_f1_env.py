"""`lookact/F1-v0`: histories, phases, and reward by a teacher's checkpoint."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import lookact.envs
from lookact.envs.tabletop import experts
from lookact.errors import ConfigError
from lookact.recipes.world_duel.config import PRESETS
from lookact.recipes.world_duel.f1 import make_f1_env, student_env, teacher_env
from lookact.recipes.world_duel.train import main
from lookact.rewards.intrinsic_env import IntrinsicWeights

DEBUG = PRESETS["debug"]


def test_histories_end_with_the_present_frame_and_the_action_that_led_to_it():
    assert "lookact/F1-v0" in gymnasium.registry, lookact.envs
    env = gymnasium.make("lookact/F1-v0", history_length=3, max_steps=5, action_scale=0.5, distractors=0)
    shown, _ = env.reset(seed=0)
    frames, actions = [shown["image_history"][-1]], []
    assert all(np.array_equal(shown["image_history"][i], frames[0]) for i in range(3))
    assert not shown["action_history"].any()
    over = False
    while not over:
        action = np.full(8, 1.0 if len(actions) % 2 else -0.5, np.float32)
        shown, reward, terminated, truncated, _ = env.step(action)
        frames.append(shown["image_history"][-1])
        actions.append(0.5 * action)
        over = terminated or truncated
        assert reward == 0.0
    assert len(actions) == 5
    assert np.array_equal(shown["image_history"], np.stack(frames[-3:]))
    assert np.array_equal(shown["action_history"], np.stack(actions[-3:]))
    env.close()


def test_with_a_task_its_reward_is_paid():
    env = make_f1_env(task="reach", max_steps=6, distractors=0, control="ee_delta")
    env.reset(seed=0)
    rewards = [env.step(experts.expert_action(env.unwrapped))[1] for _ in range(3)]
    assert max(rewards) > 0
    env.close()


def test_it_keeps_gymnasiums_rules_and_each_phase_shows_its_cameras():
    env = teacher_env(max_steps=4, distractors=0)
    check_env(env, skip_render_check=True)
    assert "head" in env.observation_space.spaces
    env.close()


@pytest.mark.slow
def test_a_student_is_paid_by_the_frozen_world_model_of_a_teacher(train, tmp_path):
    train(main, replace(DEBUG, phase="teacher"))
    checkpoint = tmp_path / "run" / "checkpoint-2"
    env = student_env(checkpoint, max_steps=4, weights=IntrinsicWeights(memory=0.0, novelty=0.0))
    shown, _ = env.reset(seed=1)
    assert "head" not in shown
    assert env.observation_space.contains(shown)
    total = 0.0
    for _ in range(4):
        _, reward, _, truncated, info = env.step(env.action_space.sample())
        assert reward == pytest.approx(info["intrinsic"]["uncertainty"])
        total += reward
    assert truncated
    assert total > 0
    env.close()


def test_without_single_arm_the_table_has_two():
    env = make_f1_env(single_arm=False, max_steps=3, control="delta_qpos", image_size=16)
    shown, _ = env.reset(seed=0)
    assert (env.action_space.shape, shown["state"].shape, shown["action_history"].shape) == ((16,), (22,), (4, 16))
    env.close()


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="give teacher"):
        make_f1_env(phase="student")
    with pytest.raises(ConfigError, match="choose teacher or student"):
        make_f1_env(phase="duel")
    with pytest.raises(ConfigError, match="action_scale is 2"):
        make_f1_env(action_scale=2)
