import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from lookact.envs.testbeds.memory_curtain import CURTAIN, MemoryCurtain
from lookact.errors import ConfigError


def test_gymnasium_finds_nothing_wrong():
    check_env(MemoryCurtain(), skip_render_check=True)


def test_the_thing_is_seen_at_first_and_every_period_and_never_between():
    env = MemoryCurtain(period=3, max_steps=7)
    first, _ = env.reset(seed=4)
    views = [first["wrist"]]
    waits = [float(first["state"][0])]
    for _ in range(7):
        shown, _, terminated, truncated, _ = env.step(env.action_space.sample())
        views.append(shown["wrist"])
        waits.append(float(shown["state"][0]))
    assert not terminated
    assert truncated
    hidden = [bool((view == CURTAIN).all()) for view in views]
    assert hidden == [False, True, True, False, True, True, False, True]
    assert np.array_equal(views[0], views[3])
    assert waits[:4] == pytest.approx([0.0, 2 / 3, 1 / 3, 0.0])


def test_the_same_seed_hides_the_same_thing_and_others_differ():
    views = [MemoryCurtain().reset(seed=seed)[0]["wrist"] for seed in (1, 1, 2, 3, 4, 5, 6)]
    assert np.array_equal(views[0], views[1])
    assert len({view.tobytes() for view in views}) > 3


def test_a_curtain_that_never_closes_is_refused():
    with pytest.raises(ConfigError, match="period of 2 or more"):
        MemoryCurtain(period=1)


def test_pointing_at_what_is_hidden_ends_the_episode():
    env = MemoryCurtain(image_size=16, period=3, point=True)
    for seed in range(6):
        for right in (True, False):
            env.reset(seed=seed)
            outcome = []
            for _ in range(3):
                action = env.expert_action()
                outcome = env.step(action if right else -action)
                assert (action != 0).sum() == (2 if env.steps == 3 else 0)
            assert outcome[1:4] == (float(right), right, not right)
            assert outcome[4]["success"] is right
            # what was pointed at is where the colour is
            picture = outcome[0]["wrist"].astype(int).reshape(2, 8, 2, 8, 3)[:, 0, :, 0]
            coloured = np.argwhere((picture != picture.max(axis=(0, 1))).any(axis=-1))
            assert [env.place // 2, env.place % 2] in coloured.tolist()


def test_pointing_takes_four_corners():
    with pytest.raises(ConfigError, match="2 by 2 corners"):
        MemoryCurtain(places=4, point=True)
