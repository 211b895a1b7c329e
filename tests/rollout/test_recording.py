import numpy as np

from lookact.envs.testbeds.memory_curtain import MemoryCurtain
from lookact.envs.vector.vector_env import InlineVectorEnv
from lookact.rollout.recording import record


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
