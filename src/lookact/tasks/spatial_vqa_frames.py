"""VSI-Bench's own protocol: frames of a recorded walk, the question, and one reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lookact.envs.rooms.arkit import load_frames
from lookact.envs.rooms.arkit_frames import load_image
from lookact.errors import DataError, ParseError
from lookact.tasks.spatial_vqa import AskingEnv, asked
from lookact.text.actions import ANSWER_KEY, parse_move_or_answer
from lookact.types import Image, Observation

NO_ANSWER = "none"


class FramesEnv:
    """One turn: `frames` pictures of the walk that came with the scene, spread evenly over it."""

    def __init__(self, asking: AskingEnv, frames: int) -> None:
        self.asking, self.frames = asking, frames

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        _, info = self.asking.reset(seed=seed, options=options)
        images = {f"frame_{number:03d}": image for number, image in enumerate(self._walk(options))}
        self.shown = Observation(asked(self.asking.env.task.question, self.asking.prompts), images)
        return self.shown, info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        _, reward, terminated, _, info = self.asking.step({ANSWER_KEY: prediction_in(str(action))})
        return self.shown, reward, terminated, False, info

    def close(self) -> None:
        self.asking.close()

    def _walk(self, options: Mapping[str, Any]) -> list[Image]:
        """The recorded pictures where there are some, else views from the recorded poses."""
        env = self.asking.env
        if env.rows is not None:
            folder = env.rows[options["scene_seed"] % len(env.rows)][1]
            if recorded := load_frames(folder):
                return [load_image(recorded[i].image) for i in spread(len(recorded), self.frames)]
        poses = env.task.sim.scene.trajectory
        if not len(poses):
            raise DataError(f"scene {env.task.sim.scene.id} has no recorded walk: use evaluation.protocol agent")
        views = env.task.sim.renderer.render(poses[spread(len(poses), self.frames)], env.camera)
        return list(views.rgb)


def prediction_in(reply: str) -> str:
    """The answer in a reply's JSON, else its words as they are; a reply that only moves answers nothing."""
    try:
        return str(parse_move_or_answer(reply).get(ANSWER_KEY, NO_ANSWER))
    except ParseError:
        return reply.strip() or NO_ANSWER


def spread(total: int, count: int) -> list[int]:
    """`count` indices spread evenly over `total`, or all of them."""
    chosen: list[int] = np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int)).tolist()
    return chosen
