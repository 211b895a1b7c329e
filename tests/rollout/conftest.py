"""A tiny chat model and a toy world, made once."""

import numpy as np
import pytest

from lookact.models.loading import load_chat
from lookact.models.tiny import make_tiny
from lookact.types import Observation

CORPUS = [
    f'I see it. {{"rotation_angle_degrees": {angle}, "forward_meters": {step}}}'
    for angle in range(-180, 181, 15)
    for step in (0.0, 0.25, 0.5, 1.0)
] + [f"Go to the chair. Turn {i} of 10." for i in range(1, 11)]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"), corpus=CORPUS, seed=0)


@pytest.fixture
def chat(tiny_folder):
    return load_chat(tiny_folder)


class ToyEnv:
    """Shows noise drawn from its seed; an episode lasts as many turns as its options say."""

    def reset(self, *, seed, options):
        self.rng = np.random.default_rng(seed)
        self.turn, self.turns, self.explode = 0, options.get("turns", 3), options.get("explode", -1)
        return self._look(), {}

    def step(self, action):
        self.turn += 1
        if self.turn == self.explode:
            raise RuntimeError("the floor gave way")
        return self._look(), float(self.turn), self.turn == self.turns, False, {"said": action}

    def _look(self):
        cameras = ("head", "wrist")[: 1 + self.turn % 2]
        images = {name: self.rng.integers(0, 255, (64, 96, 3), dtype=np.uint8) for name in cameras}
        return Observation(text=f"Go to the chair. Turn {self.turn + 1} of 10.", images=images)

    def close(self):
        pass


@pytest.fixture
def toy_envs():
    return [ToyEnv() for _ in range(4)]
