"""An environment as others write them: a dot to be brought to a ring, with a picture and two vectors, in 30 lines."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Dot(gymnasium.Env):
    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (48, 48, 3), np.uint8),
            "position": spaces.Box(-1, 1, (2,), np.float32),
            "goal": spaces.Box(-1, 1, (2,), np.float64),
        }
    )
    action_space = spaces.Box(-0.2, 0.2, (2,), np.float32)
    ends = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-0.8, 0.8, (2, 2)).astype(np.float32)
        return self.observation(), {"instruction": "bring the dot to the ring"}

    def step(self, action):
        before = np.linalg.norm(self.goal - self.position)
        self.position = np.clip(self.position + action, -1, 1)
        distance = np.linalg.norm(self.goal - self.position)
        near = bool(distance < 0.25)
        return self.observation(), float(before - distance) + near, near and self.ends, False, {"is_success": near}

    def observation(self):
        image = np.full((48, 48, 3), 40, np.uint8)
        for spot, colour in ((self.goal, (220, 60, 60)), (self.position, (60, 220, 60))):
            x, y = ((spot + 1) * 21).astype(int)
            image[y : y + 6, x : x + 6] = colour
        return {"image": image, "position": self.position, "goal": self.goal}


class EndlessDot(Dot):
    ends = False
