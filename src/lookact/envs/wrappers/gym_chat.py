"""Any Gymnasium environment as a chat environment: its render is the picture, an instruction says what is wanted.

env = GymChat(
    gymnasium.make("FrozenLake-v1", is_slippery=False, render_mode="rgb_array"),
    instruction="Walk to the present; the holes end the walk.",
    actions={"left": 0, "down": 1, "right": 2, "up": 3},
)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import PIL.Image

from lookact.envs.wrappers.gym_rules import GymEnv as GymEnv
from lookact.envs.wrappers.gym_rules import checked_reset, checked_step
from lookact.errors import EnvError, ParseError
from lookact.text.actions import WORD_KEY, parse_json_object
from lookact.types import Image, Observation

CAMERA = "view"
KEY = WORD_KEY

ReadAction = Callable[[str], Any]
"""From a reply to an action of the environment; raises ParseError, whose text the model is told."""
Success = Callable[[float, bool, Mapping[str, Any]], bool]
"""Whether an episode has succeeded, from a step's reward, `terminated` and info."""


class GymChat:
    """The `Env` protocol over a Gymnasium environment that draws itself.

    An action that can't be read does not step the environment: the model is told, the turn is counted, and
    `info["valid_action"]` is False. Episodes of one group begin alike: `options["start_seed"]` seeds the environment.
    """

    def __init__(
        self,
        env: GymEnv | Callable[[int], GymEnv],
        *,
        instruction: str | Callable[[Mapping[str, Any]], str],
        actions: Mapping[str, Any] | ReadAction,
        max_turns: int = 30,
        image_size: int | None = None,
        picture: Callable[[GymEnv], Image] | None = None,
        success: Success | None = None,
        invalid_reward: float = 0.0,
    ) -> None:
        """`env` may be a function of a seed, for environments whose layout is drawn when they are made.

        `actions`: words and what they mean to the environment, or a function that reads a reply. `picture` is
        `env.render()` unless given, scaled to `image_size` pixels a side. `success`: terminated with a reward above 0.
        """
        self._make = env if not isinstance(env, gymnasium.Env) else None
        self._env = env if isinstance(env, gymnasium.Env) else None
        self.instruction, self.max_turns, self.image_size = instruction, max_turns, image_size
        self.read = actions if callable(actions) else read_words(actions)
        self.picture = picture or rendered
        self.success = success or (lambda reward, terminated, info: terminated and reward > 0)
        self.invalid_reward = invalid_reward
        self.turn = 0
        self._over = True

    @property
    def env(self) -> GymEnv:
        """The environment of the current episode."""
        if self._env is None:
            raise EnvError("the environment is made by its seed: call reset first")
        return self._env

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        start = int(options.get("start_seed", seed)) % 2**31
        if self._make is not None:
            if self._env is not None:
                self._env.close()
            self._env = self._make(start)
        _, info = checked_reset(self.env, seed=start)
        self.turn, self._over = 0, False
        self._info = self._told(info, succeeded=False, problem="")
        return self._observation(""), self._info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        self.turn += 1
        try:
            chosen = self.read(str(action))
        except ParseError as problem:
            reward, terminated, truncated, feedback = self.invalid_reward, False, False, f"Invalid: {problem}."
            self._info = {**self._info, "valid_action": False, "action_error": str(problem), "turn": self.turn}
        else:
            _, reward, terminated, truncated, info = checked_step(self.env, chosen)
            feedback = ""
            succeeded = bool(self.success(reward, terminated, info))
            self._info = self._told(info, succeeded=succeeded, problem="")
        truncated = not terminated and (truncated or self.turn >= self.max_turns)
        self._over = terminated or truncated
        return self._observation(feedback), reward, terminated, truncated, self._info

    def close(self) -> None:
        if self._env is not None:
            self._env.close()

    def _told(self, info: Mapping[str, Any], *, succeeded: bool, problem: str) -> dict[str, Any]:
        return {
            **info,
            "success": succeeded,
            "valid_action": not problem,
            "action_error": problem,
            "turn": self.turn,
            "max_turns": self.max_turns,
        }

    def _observation(self, feedback: str) -> Observation:
        instruction = self.instruction if isinstance(self.instruction, str) else self.instruction(self._info)
        over = self.turn >= self.max_turns
        words = (feedback, instruction, "" if over else f"Turn {self.turn + 1} of {self.max_turns}.")
        picture = self.picture(self.env)
        if self.image_size is not None:
            picture = scaled(picture, self.image_size)
        return Observation(text=" ".join(word for word in words if word), images={CAMERA: picture})


def read_words(actions: Mapping[str, Any]) -> ReadAction:
    """Reads {"action": WORD}, or the last of the words in a reply without JSON; upper and lower case are one."""
    by_word = {word.lower(): action for word, action in actions.items()}
    pattern = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in sorted(by_word, key=len, reverse=True)))
    choices = ", ".join(actions)

    def read(reply: str) -> Any:
        if "{" in reply:
            named = parse_json_object(reply).get(KEY)
            if isinstance(named, str) and named.strip().lower() in by_word:
                return by_word[named.strip().lower()]
            raise ParseError(f"{KEY} must be one of {choices}")
        found = pattern.findall(reply.lower())
        if not found:
            raise ParseError(f"say one of {choices}")
        return by_word[found[-1]]

    return read


def rendered(env: GymEnv) -> Image:
    """What the environment draws of itself."""
    picture: Any = env.render()
    if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise EnvError('render() gave no (h, w, 3) uint8 picture: make the environment with render_mode="rgb_array"')
    return picture


def blank(env: GymEnv) -> Image:
    """A black picture as large as the environment's: what can be learned without seeing."""
    return np.zeros_like(rendered(env))


def scaled(picture: Image, size: int) -> Image:
    """(size, size, 3), each new pixel the mean of those it covers."""
    box = PIL.Image.Resampling.BOX
    return np.asarray(PIL.Image.fromarray(picture).resize((size, size), box), dtype=np.uint8)
