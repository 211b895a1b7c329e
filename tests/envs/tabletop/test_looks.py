import numpy as np

from lookact.envs.tabletop.control import REACH_LOW
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.looks import look_around


def test_the_facts_are_so():
    env = Tabletop(cameras=("head",), image_size=32)
    for look in look_around(env, range(6)):
        now = env.situation()
        assert np.allclose(look.facts, np.concatenate([now.object - now.tool, now.target - now.tool]), atol=1e-6)
        # the state's last three numbers are where the tool is
        assert np.allclose(look.state[-3:], now.tool, atol=1e-6)
        assert look.images["head"].shape == (32, 32, 3)
        assert now.tool[2] > REACH_LOW[2] - 0.01


def test_the_same_seed_is_the_same_look_and_others_differ():
    env = Tabletop(cameras=("wrist",), image_size=32)
    first, other = look_around(env, [5, 6])
    (again,) = look_around(env, [5])
    assert np.array_equal(first.images["wrist"], again.images["wrist"])
    assert np.array_equal(first.facts, again.facts)
    assert not np.array_equal(first.facts, other.facts)


def test_things_are_seen_far_near_and_between_the_fingers():
    env = Tabletop(cameras=("wrist",), image_size=16)
    apart = np.array([np.linalg.norm(look.facts[:3]) for look in look_around(env, range(40))])
    assert 4 <= (apart < 0.015).sum() <= 24
    assert (apart > 0.1).sum() >= 4
    assert ((apart > 0.015) & (apart < 0.1)).sum() >= 4


def test_a_rearranged_scene_is_where_it_was_told_to_be():
    env = Tabletop(cameras=())
    env.reset(seed=0)
    place, thing = np.array([0.5, 0.1, 0.1]), np.array([0.5, -0.1, 0.2])
    shown = env.rearrange(place, 0.5, thing)
    now = env.situation()
    assert np.linalg.norm(now.tool - place) < 0.005
    assert np.allclose(now.object, thing)
    assert abs(float(shown["state"][7]) - 0.5) < 1e-6
    # and goes on from there: nothing holds it, so it falls
    env.step(np.zeros(4, np.float32))
    assert env.situation().object[2] < 0.2
