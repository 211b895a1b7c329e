"""What a policy or a world model remembers of the last steps: one ring of pairs of a frame and the action taken on it.

Frames and actions can't drift apart, for they are stored together: `images[i]` is the frame before `actions[i]` was
executed, and with a stride of 1 `images[i + 1]` is the one after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.errors import ConfigError, EnvError

PADDINGS = ("first", "zeros")


@dataclass(frozen=True)
class Window:
    """The last pairs, oldest first."""

    images: NDArray[np.uint8]
    """(n, ...) frames."""
    actions: NDArray[np.float32]
    """(n, a); zeros where nothing was done yet."""
    filled: NDArray[np.bool_]
    """(n,) True on pairs that happened, False on padding before the episode's first step."""


class PairHistory:
    """The last `length` pairs of one episode, `stride` steps apart."""

    def __init__(
        self, length: int, frame_shape: tuple[int, ...], action_size: int, *, stride: int = 1, padding: str = "first"
    ) -> None:
        if length < 1 or stride < 1:
            raise ConfigError(f"a history of length {length} and stride {stride} is empty: give 1 or more of each")
        if padding not in PADDINGS:
            raise ConfigError(f"padding is {padding!r}: choose one of {', '.join(PADDINGS)}")
        self.length, self.stride, self.padding = length, stride, padding
        # one place more than the pairs reach back, for the frame that has no action yet
        self._size = (length - 1) * stride + 2
        self._frames = np.zeros((self._size, *frame_shape), np.uint8)
        self._actions = np.zeros((self._size, action_size), np.float32)
        self._first = np.zeros(frame_shape, np.uint8)
        self._steps = -1

    def reset(self, frame: NDArray[np.uint8]) -> None:
        """An episode begins with this frame; nothing of the last one is left."""
        self._steps = 0
        self._frames[0] = self._checked(frame, self._frames)
        self._first = frame.copy()

    def push(self, action: NDArray[np.float32], frame: NDArray[np.uint8]) -> None:
        """`action` was executed on the present frame, and led to this one."""
        if self._steps < 0:
            raise EnvError("a history takes no pair before its first frame: call reset")
        self._actions[self._steps % self._size] = self._checked(action, self._actions)
        self._steps += 1
        self._frames[self._steps % self._size] = self._checked(frame, self._frames)

    def window(self, action: NDArray[np.float32] | None = None) -> Window:
        """The last pairs; with `action`, the newest is the present frame and this action, not yet executed."""
        if self._steps < 0:
            raise EnvError("a history has no window before its first frame: call reset")
        newest = self._steps - 1 if action is None else self._steps
        if action is not None:
            self._actions[self._steps % self._size] = self._checked(action, self._actions)
        steps = newest - self.stride * np.arange(self.length)[::-1]
        filled = steps >= 0
        images, actions = self._frames[steps % self._size], self._actions[steps % self._size]
        images[~filled] = self._first if self.padding == "first" else 0
        actions[~filled] = 0.0
        return Window(images, actions, filled)

    def state_dict(self) -> dict[str, Any]:
        return {
            "steps": self._steps,
            "frames": self._frames.tobytes(),
            "actions": self._actions.tobytes(),
            "first": self._first.tobytes(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]
        for array, name in ((self._frames, "frames"), (self._actions, "actions"), (self._first, "first")):
            array[...] = np.frombuffer(state[name], array.dtype).reshape(array.shape)

    @staticmethod
    def _checked(value: NDArray[Any], ring: NDArray[Any]) -> NDArray[Any]:
        if np.shape(value) != ring.shape[1:]:
            raise EnvError(
                f"a history of {ring.shape[1:]} was given {np.shape(value)}: frames and actions keep one shape"
            )
        return value
