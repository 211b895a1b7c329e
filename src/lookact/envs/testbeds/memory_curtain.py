"""Memory testbed `lookact/MemoryCurtain-v0`: an object behind a curtain that opens every few steps.

The next opening can be predicted from memory of the object's colour and place, not from the last few frames. With
`point` it is a task: in the step before the second opening, the first two numbers of the action are to point at the
object's corner. That step ends the episode, terminated where it was right.
Observations have the tabletop's form (two images, a state, an instruction), so that the environments are exchangeable.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.rooms.interface import PRINTABLE, Shown
from lookact.errors import ConfigError
from lookact.seeding import numpy_rng
from lookact.types import Image

COLOURS = np.array([[220, 40, 40], [40, 180, 60], [50, 80, 220], [240, 200, 40]], np.uint8)
CURTAIN, GROUND = np.array([120, 120, 130], np.uint8), np.array([235, 235, 230], np.uint8)
INSTRUCTION = "remember what is behind the curtain"
STATE_SIZE, ACTION_SIZE = 1, 8


class MemoryCurtain(gymnasium.Env[Shown, NDArray[np.float32]]):
    """The curtain is open at the first step and every `period` steps from then on; `state` is the time to the next."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, *, image_size: int = 32, max_steps: int = 48, period: int = 6, places: int = 2, point: bool = False
    ) -> None:
        if period < 2 or image_size % places:
            raise ConfigError(
                f"period {period} and {places} places in {image_size} pixels: give a period of 2 or more, "
                "and places that divide the image"
            )
        if point and places != 2:
            raise ConfigError(f"{places} places a side: pointing is at one of 2 by 2 corners")
        self.image_size, self.max_steps, self.period, self.places = image_size, max_steps, period, places
        self.point = point
        image = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(
            {
                "head": image,
                "wrist": image,
                "state": spaces.Box(0.0, 1.0, (STATE_SIZE,), np.float32),
                "instruction": spaces.Text(len(INSTRUCTION), charset=PRINTABLE),
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        super().reset(seed=seed)
        rng = self.np_random if seed is None else numpy_rng(seed, "hidden")
        self.colour, self.place = int(rng.integers(len(COLOURS))), int(rng.integers(self.places**2))
        self.steps = 0
        return self._shown(), self._info()

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        asked = self.point and self.steps == self.period - 1
        right = asked and bool((np.asarray(action[:2]) * self._corner() > 0).all())
        self.steps += 1
        over = self.steps >= self.max_steps or asked
        return self._shown(), float(right), right, over and not right, self._info() | {"success": right}

    def expert_action(self) -> NDArray[np.float32]:
        """Points at the object when asked to, and is still before: past actions tell nothing."""
        action = np.zeros(ACTION_SIZE, np.float32)
        if self.steps == self.period - 1:
            action[:2] = self._corner()
        return action

    def _corner(self) -> NDArray[np.float32]:
        """(2,) the object's place, -1 or 1 from left to right and from top to bottom."""
        return np.array([2 * (self.place % 2) - 1, 2 * (self.place // 2) - 1], np.float32)

    def _shown(self) -> Shown:
        wait = np.float32((-self.steps % self.period) / self.period)
        image = self._draw()
        return {
            "head": np.broadcast_to(CURTAIN, image.shape).copy(),
            "wrist": image,
            "state": np.array([wait], np.float32),
            "instruction": INSTRUCTION,
        }

    def _draw(self) -> Image:
        size, side = self.image_size, self.image_size // self.places
        image: Image = np.empty((size, size, 3), np.uint8)
        if self.steps % self.period:
            image[:] = CURTAIN
            return image
        image[:] = GROUND
        top, left = side * (self.place // self.places), side * (self.place % self.places)
        image[top : top + side, left : left + side] = COLOURS[self.colour]
        return image

    def _info(self) -> dict[str, Any]:
        return {"instruction": INSTRUCTION, "open": self.steps % self.period == 0, "step": self.steps}
