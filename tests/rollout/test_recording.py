import numpy as np
import pytest

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.testbeds.memory_curtain import MemoryCurtain
from lookact.envs.vector.vector_env import InlineVectorEnv
from lookact.errors import EnvError
from lookact.rollout.recording import record, record_demonstrations, record_object_masks, stack_demonstrations


def plan(row, episode):
    return 10 * episode + row, {}


def test_a_recording_holds_one_frame_more_than_actions():
    envs = InlineVectorEnv(lambda: MemoryCurtain(image_size=16, max_steps=9), 3)
    actions = np.zeros((3, 7, 8), np.float32)
    made = record(envs, actions, plan)
    assert made.wrist.shape == (3, 8, 16, 16, 3)
    assert made.mask.all()
    alone = MemoryCurtain(image_size=16, max_steps=9)
    first, _ = alone.reset(seed=2)
    assert np.array_equal(made.wrist[2, 0], first["wrist"])
    # open at 0 and 6
    assert np.array_equal(made.wrist[2, 6], first["wrist"])
    assert not np.array_equal(made.wrist[2, 7], first["wrist"])
    assert made.texts[1] == "remember what is behind the curtain"


def test_what_follows_an_end_does_not_count():
    envs = InlineVectorEnv(lambda: MemoryCurtain(image_size=16, max_steps=4), 2)
    made = record(envs, np.zeros((2, 6, 8), np.float32), plan)
    assert made.mask.tolist() == [[True] * 3 + [False] * 3] * 2


def test_demonstrations_are_the_experts_and_end_where_it_succeeds():
    env = MemoryCurtain(image_size=16, period=3, point=True)
    found = record_demonstrations(env, MemoryCurtain.expert_action, seed=0, episodes=5, steps=4)
    assert found.wrist.shape == (5, 5, 16, 16, 3)
    # the second opening comes after three actions, the last of which points; the fourth did not happen
    assert found.mask.tolist() == [[True, True, True, False]] * 5
    assert (found.actions[:, [0, 1, 3]] == 0).all()
    assert (np.abs(found.actions[:, 2, :2]) == 1).all()
    assert (found.wrist[:, 3] == found.wrist[:, 0]).all()
    assert (found.wrist[:, 4] == found.wrist[:, 3]).all()
    again = record_demonstrations(env, MemoryCurtain.expert_action, seed=0, episodes=5, steps=4)
    assert (again.actions == found.actions).all()


def test_an_expert_that_does_not_succeed_is_told():
    env = MemoryCurtain(image_size=16, point=True)
    with pytest.raises(EnvError, match="succeeded 0 times in 8: allow more than 3 steps"):
        record_demonstrations(env, MemoryCurtain.expert_action, seed=0, episodes=2, steps=3)


def test_a_longer_episode_is_cut():
    shown = [{"wrist": np.full((2, 2, 3), t), "head": np.zeros((2, 2, 3)), "state": np.array([t]), "instruction": "go"}
             for t in range(6)]  # fmt: skip
    found = stack_demonstrations([(shown, np.arange(6.0).reshape(6, 1))], 4)
    assert found.state[0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert (found.actions[0, :, 0].tolist(), found.mask.all()) == ([0.0, 1.0, 2.0, 3.0], True)


def test_object_masks_are_those_of_the_same_episodes_frames():
    def make():
        return Tabletop(task="reach", image_size=32, max_steps=5, terminate_on_success=False)

    envs, table = InlineVectorEnv(make, 2), make()
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4)).astype(np.float32)
    masks, made = record_object_masks(table, actions, plan), record(envs, actions, plan)
    assert masks.shape == (2, 4, 32, 32)
    # the episodes are the same: the last frame of the last one is what the table shows now
    assert np.array_equal(table._draw(("head", "wrist"))["wrist"], made.wrist[1, -1])
    assert np.array_equal(masks[1, -1], table.object_mask("wrist"))
    table.close()
    envs.close()
