import numpy as np

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.testbeds.noisy_tv import NOISE_FROM, NoisyTV, noise_in_view


def make():
    return NoisyTV(Tabletop(task="reach", image_size=16, terminate_on_success=False))


def test_noise_fills_a_quarter_of_the_view_on_one_side_only():
    noisy, plain = make(), Tabletop(task="reach", image_size=16, terminate_on_success=False)
    noisy.reset(seed=3)
    plain.reset(seed=3)
    seen = set()
    for step in range(30):
        # to one side, then to the other
        action = np.array([0, 1 if step < 10 else -1, 0, 1], np.float32)
        one, other = noisy.step(action)[0], plain.step(action)[0]
        assert np.array_equal(one["state"], other["state"])
        assert np.array_equal(one["wrist"][8:], other["wrist"][8:])
        assert np.array_equal(one["head"], other["head"])
        disturbed = not np.array_equal(one["wrist"], other["wrist"])
        assert disturbed == bool(noise_in_view(one["state"])) == bool(one["state"][9] > NOISE_FROM)
        seen.add(disturbed)
    assert seen == {True, False}
    noisy.close()
    plain.close()


def test_the_same_seed_gives_the_same_noise():
    frames = []
    for _ in range(2):
        env = make()
        env.reset(seed=3)
        frames.append([env.step(np.array([0, 1, 0, 1], np.float32))[0]["wrist"] for _ in range(8)])
        env.close()
    assert np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[0][-1], frames[0][-2])
