"""What clients send as an observation, by whatever names, brought to what a policy was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lookact.serving.limits import Refused

PLACES = ("", "observation/", "images/", "observation/images/", "observation/image/")
"""Where clients put a camera, beside its bare name; points in names are read as slashes."""
STATES = ("state", "states", "observation/state")
TEXTS = ("instruction", "prompt", "task_description", "task")


@dataclass(frozen=True)
class PolicyFacts:
    """What a policy wants to be shown, and what it answers with; clients are told on connecting."""

    recipe: str
    cameras: tuple[str, ...]
    image_size: int
    state_size: int
    action_size: int
    greedy: bool
    memory: bool
    """Whether it remembers the episode, so that its beginning must be told."""


@dataclass(frozen=True)
class Shown:
    """One observation."""

    arrays: dict[str, NDArray[Any]]
    """Camera to (h, w, 3) uint8, and `state` (s,)."""
    instruction: str


def read_observation(sent: Any, facts: PolicyFacts, renames: Mapping[str, str]) -> Shown:
    """The observation in a message; `renames` maps a client's names to the policy's."""
    if not isinstance(sent, dict):
        raise Refused(422, f"an observation is a map of names, not a {type(sent).__name__}")
    found = flatten(sent)
    found |= {renames[name]: item for name, item in found.items() if name in renames}
    arrays: dict[str, NDArray[Any]] = {}
    for camera in facts.cameras:
        arrays[camera] = frame(pick(found, [place + camera for place in PLACES], camera), camera, facts.image_size)
    arrays["state"] = vector(pick(found, STATES, "state"), facts.state_size)
    texts = [found[name] for name in TEXTS if isinstance(found.get(name), str)]
    return Shown(arrays, texts[0] if texts else "")


def flatten(sent: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """Nested maps as one, names joined by slashes."""
    found: dict[str, Any] = {}
    for name, item in sent.items():
        path = above + str(name).replace(".", "/")
        found |= flatten(item, f"{path}/") if isinstance(item, dict) else {path: item}
    return found


def pick(found: Mapping[str, Any], names: tuple[str, ...] | list[str], what: str) -> Any:
    for name in names:
        if name in found:
            return found[name]
    there = ", ".join(map(str, list(found)[:12]))[:200] or "nothing"
    raise Refused(422, f"the observation has no {what}, only {there}: send it, or serve with --rename NAME={what}")


def frame(value: Any, camera: str, size: int) -> NDArray[np.uint8]:
    """(size, size, 3) of a picture of any size."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3:
        told = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise Refused(422, f"{camera} is {told}: send an array (height, width, 3) of uint8")
    if not min(value.shape):
        raise Refused(422, f"{camera} has no pixel: its shape is {value.shape}")
    if value.shape[:2] == (size, size):
        return value
    return np.asarray(Image.fromarray(value).resize((size, size), Image.Resampling.BICUBIC))


def vector(value: Any, size: int) -> NDArray[np.float32]:
    try:
        found = np.asarray(value, np.float32).reshape(-1)
    except (TypeError, ValueError):
        raise Refused(422, "the state holds what is no number") from None
    if len(found) != size or not np.isfinite(found).all():
        raise Refused(422, f"the state has {len(found)} numbers: send {size}, all finite")
    return found
