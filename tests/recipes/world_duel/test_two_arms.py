"""Two arms in every phase: 16 of the 32 padded numbers of an action, 22 of a state."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lookact.data.sequences import Recording
from lookact.envs.tabletop.two_arms import TwoArms
from lookact.errors import ConfigError
from lookact.recipes.world_duel.config import PRESETS
from lookact.recipes.world_duel.evaluate import tool_positions
from lookact.recipes.world_duel.f1.environments import env_maker
from lookact.recipes.world_duel.preflight import check_sizes
from lookact.recipes.world_duel.train import evaluate, main

DEBUG = PRESETS["debug"]
TWO = replace(DEBUG, env=replace(DEBUG.env, name="two_arms", num_envs=2))


def test_sizes_and_places_of_two_arms():
    shapes = TWO.env.shapes
    assert (shapes.state_size, shapes.action_size) == (22, 16)
    assert TWO.env.position == [8, 9, 10, 19, 20, 21]
    assert TWO.env.joints == [*range(7), *range(11, 18)]
    assert DEBUG.env.position == slice(8, 11)
    env = env_maker(TWO.env)()
    assert isinstance(env, TwoArms)
    assert env.action_space.shape == (16,)
    env.close()


def test_coverage_counts_the_cells_of_both_tools():
    state = np.zeros((1, 2, 22), np.float32)
    state[0, :, 8:11], state[0, :, 19:22] = [1, 2, 3], [4, 5, 6]
    nothing = np.zeros((1, 2, 1), np.float32)
    recording = Recording(nothing, nothing, state, nothing, np.array([""]), np.ones((1, 1), np.bool_))
    assert tool_positions(recording, TWO).tolist() == [[[[1, 2, 3], [4, 5, 6]]] * 2]
    assert tool_positions(recording, DEBUG).tolist() == [[[1, 2, 3]] * 2]


def test_a_width_without_room_for_both_is_refused():
    with pytest.raises(ConfigError, match="two_arms has 16 numbers of action"):
        check_sizes(replace(TWO, model=replace(TWO.model, action_dim=8)))


@pytest.mark.slow
def test_two_arms_go_through_teacher_student_and_adversarial(train, tmp_path):
    result = train(main, TWO)
    assert set(result) == {"teacher", "student", "adversarial"}
    assert result["student"]["explorer"]["student_cells"] >= 2
    weights = load_file(tmp_path / "run/checkpoint-6/student/model.safetensors")
    assert weights["action_head.log_std"].shape == (16,)
    assert weights["action_mask"].sum() == 16
    assert weights["state_mask"].sum() == 22
    # the padding is never learned: nothing of it reaches a loss
    first = load_file(tmp_path / "run/checkpoint-2/model.safetensors")
    assert torch.equal(weights["action_head.output.bias"][16:], first["action_head.output.bias"][16:])
    assert not torch.equal(weights["action_head.output.bias"][8:16], first["action_head.output.bias"][8:16])


@pytest.mark.slow
def test_two_arms_clone_an_expert_and_go_on_by_ppo(train, tmp_path):
    cfg = replace(TWO, phase="task", env=replace(TWO.env, control="ee_delta", steps_per_episode=16))
    result = train(main, cfg)
    assert set(result) == {"clone", "reinforce"}
    report = evaluate(
        cfg, checkpoint=tmp_path / "run/checkpoint-3", episodes=2, greedy=True, dummy=False, folder=tmp_path
    )
    assert report["episodes"] == 2
