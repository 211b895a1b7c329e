import numpy as np
import pytest

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.experts import expert_action, record
from lookact.envs.tabletop.hindsight import MOVED, relabel
from lookact.errors import ConfigError


def stopped_early(env: Tabletop, seed: int, steps: int) -> list[np.ndarray]:
    """The expert's push, given up halfway: the hand goes up and stays there."""
    recording = record(env, seed=seed)
    return [*recording.actions[:steps], *[np.array([0, 0, 1, -1], np.float32)] * (env.max_steps - steps)]


def test_a_failed_push_becomes_one_that_meant_to_end_where_it_did():
    env = Tabletop(cameras=("head",), image_size=32, task="push", max_steps=40, distractors=1)
    found = []
    for seed in range(10):
        length = len(record(env, seed=seed).actions)
        actions = stopped_early(env, seed, length - 3)
        env.reset(seed=seed)
        words, asked = env.instruction, env.start.targets[0].copy()
        again = relabel(env, seed, actions)
        if again is None:
            continue
        assert again.info["success"]
        assert again.info["instruction"] == words
        assert len(again.shown) == len(again.actions) <= len(actions)
        assert np.array_equal(again.actions, np.array(actions[: len(again.actions)]))
        # the mark now lies where the object did, and is seen there
        assert np.linalg.norm(env.start.targets[0] - asked) > 0.01
        assert np.linalg.norm(env.situation().object[:2] - env.start.targets[0]) < 0.035
        plain, _ = env.reset(seed=seed)
        assert not np.array_equal(plain["head"], again.shown[0]["head"])
        assert np.array_equal(plain["state"], again.shown[0]["state"])
        found.append(seed)
    assert len(found) >= 5
    env.close()


def test_what_moved_nothing_is_left_out_and_a_success_is_as_it_was():
    env = Tabletop(cameras=(), task="push", max_steps=40)
    assert relabel(env, 0, [np.array([0, 0, 1, 1], np.float32)] * 40) is None
    recording = record(env, seed=0)
    again = relabel(env, 0, list(recording.actions))
    assert again is not None
    assert np.array_equal(again.actions, recording.actions)
    assert all(np.array_equal(a["state"], b["state"]) for a, b in zip(again.shown, recording.shown))
    assert MOVED > 0.035, "an object that lies on its mark from the start would be a success of nothing"


def test_a_moved_mark_is_kept_in_a_saved_episode_and_only_marks_move():
    env, other = (Tabletop(cameras=(), task="push") for _ in range(2))
    env.reset(seed=2, options={"target_place": (0.55, 0.05)})
    assert env.situation().target[:2] == pytest.approx([0.55, 0.05])
    for _ in range(4):
        env.step(expert_action(env))
    other.load_state_dict(env.state_dict())
    assert np.array_equal(env.situation().target, other.situation().target)
    with pytest.raises(ConfigError, match="marks"):
        Tabletop(cameras=()).reset(seed=0, options={"target_place": (0.5, 0.0)})
