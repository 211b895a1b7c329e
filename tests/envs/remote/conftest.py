"""A task whose environment does as it is told, and servers of tasks in threads of this process."""

import threading
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from lookact.errors import EnvError
from lookact.seeding import numpy_rng
from lookact.types import EpisodeSpec, Observation

LAST = 4


class PictureEnv:
    """Shows noise drawn from the seed and the actions; ends after four turns, or does what the action says."""

    def __init__(self, task):
        self.task, self.turn = task, -1
        task.made.append(self)

    def reset(self, *, seed, options):
        self.said, self.turn, self.seed = [], 0, seed
        return self._show(), {"options": dict(options), "turn": 0}

    def step(self, action):
        if self.turn < 0:
            raise EnvError("the episode is over: call reset before the next step")
        if action == "raise":
            raise EnvError("a wheel\ncame off")
        if action == "hang":
            self.task.hanging.set()
            assert self.task.let_go.wait(60)
        self.turn += 1
        self.said.append(action)
        with self.task.lock:
            self.task.steps += 1
        info = {"valid_action": True, "success": action == "win", "turn": self.turn, "pair": (1, np.float32(0.5))}
        if action == "object":
            info["odd"] = object()
        return self._show(), float(self.turn) / 3, action == "win", self.turn == LAST, info

    def close(self):
        self.task.closed += 1

    def _show(self):
        seed = self.task.draw() if self.task.unseeded else self.seed
        rng = numpy_rng(seed, "picture", *map(str, self.said))
        depth = rng.random((4, 6), dtype=np.float32)
        image = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
        return Observation(f"turn {self.turn}", {"view": image}, depth, np.full(2, self.turn, np.float32))


@dataclass
class PictureTask:
    image_size: int = 32
    unseeded: bool = False
    steps: int = 0
    closed: int = 0
    made: list = field(default_factory=list)
    lock: object = field(default_factory=threading.Lock)
    hanging: object = field(default_factory=threading.Event)
    let_go: object = field(default_factory=threading.Event)
    drawn: int = 0
    outcome: ClassVar = {"success_rate": "success"}
    best: ClassVar = "success_rate"

    def make_env(self):
        return PictureEnv(self)

    def draw(self):
        self.drawn += 1
        return self.drawn

    def specs(self, seed, split, *, groups, group_size=1, step=0):
        return [EpisodeSpec(f"{split}-{group}", group, seed + group, {"start": group}) for group in range(groups)]


@pytest.fixture
def picture_task():
    return PictureTask()


@pytest.fixture
def serve_task(serve_app):
    """Serves a task; `around` wraps the application."""
    from lookact.envs.remote.app import LIMITS, create_app
    from lookact.judges.client import wait_until_ready

    def start(task, *, around=lambda app: app, limits=LIMITS, **options):
        app = create_app(lambda seed: task, name="picture", limits=limits, **options)
        url = serve_app(around(app), limits)
        wait_until_ready(url, seconds=60.0)
        return url

    return start
