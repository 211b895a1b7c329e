"""Observations, decisions, turns, episodes: the numpy records that flow through LookAct.

Units are what a loss runs over: sampled tokens for a chat policy, action vectors for a control policy.
A mask is True where a unit counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Image = NDArray[np.uint8]
"""(h, w, 3) RGB."""


@dataclass(frozen=True)
class Observation:
    """The input of a policy in one turn: text, images, depth, state."""

    text: str = ""
    images: Mapping[str, Image] = field(default_factory=dict)
    """Camera name to (h, w, 3); the order is the order in the prompt."""
    depth: NDArray[np.float32] | None = None
    """(h, w) metres along the viewing axis."""
    state: NDArray[np.float32] | None = None
    """(s,) pose or proprioception."""


@dataclass(frozen=True)
class FramePair:
    """Pictures before and after an action: what vision pretraining learns from where nobody labelled them."""

    before: Image
    after: Image
    action: int


@dataclass(frozen=True)
class Decision:
    """A sampled action with its log-probs, mask and token ids: all that a learner needs to score it again."""

    action: str | NDArray[np.float32]
    """The reply's text, or an action vector (a,)."""
    logprobs: NDArray[np.float32]
    """(u,) as sampled."""
    mask: NDArray[np.bool_]
    """(u,) True on the units of the action."""
    token_ids: NDArray[np.int64] | None = None
    """(u,) exactly as sampled; never encoded again from text."""
    prompt_ids: NDArray[np.int64] | None = None
    """(p,) fed since the previous decision."""
    fresh: bool = False
    """The context was rebuilt: a new training segment starts here."""
    mask_method: str = ""
    """How the action was found in the reply: brace_depth, regex, last_n or failed."""
    recalls: int = 0
    """Earlier turns whose images a rebuilt context shows again."""


@dataclass(frozen=True)
class Turn:
    """A transition: observation, decision, reward, termination."""

    observation: Observation
    decision: Decision
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EpisodeSpec:
    """An episode to run: everything but the policy that decides its content."""

    id: str
    group: int
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """Passed to `env.reset(seed=..., options=...)`; equal within a group."""


EpisodePlan = tuple[int, Mapping[str, Any]]
"""Seed and options of the next episode."""
PlanEpisode = Callable[[int, int], EpisodePlan]
"""Seed and options of a row's n-th episode."""


@dataclass(frozen=True)
class VectorObservation:
    """Observations of all environments of a vector environment."""

    arrays: dict[str, NDArray[Any]]
    """Name to (rows, ...)."""
    texts: dict[str, tuple[str, ...]]
    """Name to one text a row."""

    def row(self, row: int) -> dict[str, Any]:
        """One row as the environment itself shows it."""
        arrays = {name: array[row] for name, array in self.arrays.items()}
        return arrays | {name: texts[row] for name, texts in self.texts.items()}


@dataclass(frozen=True)
class VectorStep:
    """One step of all environments of a vector environment."""

    observations: VectorObservation
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: tuple[dict[str, Any], ...]
    finals: dict[int, dict[str, Any]]
    """Of rows whose episode ended: the observation after its last step."""


@dataclass(frozen=True)
class Demonstration:
    """What an expert saw and said. Only replies it stands by are imitated."""

    observations: tuple[Observation, ...]
    replies: tuple[str, ...]
    imitate: tuple[bool, ...]
    """False where a random action was put in: the policy sees it happen, and learns only the recovery."""


@dataclass(frozen=True)
class FloorMap:
    """Top-down map of a room, for reports: no policy sees it."""

    picture: Image
    middle: tuple[float, float]
    """(x, y) in metres of the picture's centre."""
    scale: float
    """Pixels a metre; x goes right and y up."""

    def to_pixels(self, xy: ArrayLike) -> NDArray[np.float64]:
        """Points (k, 2) in metres as pixels from the left and the top."""
        height, width = self.picture.shape[:2]
        offset = (np.asarray(xy, dtype=np.float64).reshape(-1, 2) - self.middle) * self.scale
        return np.stack([width / 2 + offset[:, 0], height / 2 - offset[:, 1]], axis=1)


@dataclass(frozen=True)
class Episode:
    """A finished episode. Episodes of one `group` start alike and share a baseline."""

    id: str
    group: int
    seed: int
    turns: tuple[Turn, ...]
    last: Observation | None = None
    """The observation after the last turn: a truncated episode bootstraps from it."""
    policy_version: int = 0
    error: str | None = None
    """Why it ended early, if the environment or engine failed: a bad rollout is data."""
    floor_map: FloorMap | None = None
    """The room, if the episode was kept for a report: states are poses (x, y, yaw, height)."""

    @property
    def terminated(self) -> bool:
        return bool(self.turns) and self.turns[-1].terminated

    @property
    def truncated(self) -> bool:
        return bool(self.turns) and self.turns[-1].truncated

    @property
    def total_reward(self) -> float:
        return float(sum(turn.reward for turn in self.turns))


@dataclass(frozen=True)
class TokenPrompt:
    """A whole conversation so far. An image stands in `ids` as one placeholder; the engine repeats it."""

    ids: list[int]
    images: tuple[Image, ...]
    seed: int
    """Of this reply: asked again, the same weights give the same reply."""


@dataclass(frozen=True)
class TokenReply:
    """The reply to one prompt."""

    prompt_ids: NDArray[np.int64]
    """(p,) as the engine read it, every image's placeholder repeated."""
    token_ids: NDArray[np.int64]
    """(u,) as sampled, the token that ends the reply included."""
    logprobs: NDArray[np.float32]
    """(u,) under the distribution that was sampled from."""
    version: int
    """Of the weights that sampled it."""


@dataclass(frozen=True)
class Preference:
    """A judge's comparison of two frames or segments. Verdict 0: the first is better, 1: the second, -1: neither."""

    first: Any
    second: Any
    verdict: int
    raw_text: str = ""
    score_first: float | None = None
    score_second: float | None = None
    """True scores, known to simulators only: for reports, never for training."""
