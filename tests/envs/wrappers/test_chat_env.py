import numpy as np

from lookact.envs.rooms.navigation import Navigation, observe
from lookact.envs.wrappers.chat_env import ChatEnv


def test_a_gymnasium_environment_becomes_a_chat():
    gym_env = Navigation(image_size=16, max_turns=1)
    env = ChatEnv(gym_env, observe)
    observation, info = env.reset(seed=3, options={"scene_seed": 1})
    assert observation.text.startswith(gym_env.task.question)
    assert info["turn"] == 0
    observation, reward, terminated, truncated, info = env.step("nothing")
    assert observation.text == f"Invalid. {gym_env.task.question} Out of turns."
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["valid_action"] is False
    assert np.array_equal(observation.images["head"], gym_env.walker.view.rgb)
    env.close()
