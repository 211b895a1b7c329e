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
