"""Where is the red square? A task for LookAct, found by its entry point."""

import gymnasium
import numpy as np
from gymnasium import spaces

from lookact.envs import GymChat
from lookact.tasks import GymTask

PLACES = ("left", "middle", "right")


class WhereIsRed(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.row = self.np_random.integers(3, size=2)
        return 0, {}

    def step(self, action):
        return 0, float(action == self.place), True, False, {}

    def render(self):
        picture = np.full((96, 96, 3), 200, dtype=np.uint8)
        picture[32 * self.row : 32 * self.row + 32, 32 * self.place : 32 * self.place + 32] = (200, 30, 30)
        return picture


def make_env():
    actions = {place: number for number, place in enumerate(PLACES)}
    return GymChat(WhereIsRed(), instruction="Where is the red square?", actions=actions, max_turns=1)


def expert(env):
    return [PLACES[env.unwrapped.place]]


def labels(env):
    cells = np.zeros((3, 3, 1), dtype=np.float32)
    cells[env.unwrapped.row, env.unwrapped.place, 0] = 1.0
    return cells


TASK = GymTask(make_env, image_size=96, actions=PLACES, expert=expert, labels=labels)


def brevity(episode):
    """A reward of its own: --reward_functions where_is_red:brevity."""
    return -0.01 * len(episode.turns)
