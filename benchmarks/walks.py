"""The work that every nav bench does: recorded walks, a tiny checkpoint, and plans.

Walks are recorded beforehand in generated rooms: pictures and texts are the navigation environment's own, episodes
last all their turns, and a step takes no time, so that what is measured is the policy's work and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from lookact.envs.rooms.experts.demonstrate import demonstrate
from lookact.envs.rooms.navigation import Navigation, observe
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import derive
from lookact.text.actions import MOVE_KEYS
from lookact.types import EpisodeSpec, Observation

Walk = tuple[Observation, ...]
DEMOS = 40
"""Demonstrated episodes whose words the tokenizer learns its pieces from."""


@dataclass(frozen=True)
class Load:
    """How much work."""

    groups: int = 8
    size: int = 8
    """Episodes a group; as many of both as a step of nav-rloo has by default."""
    turns: int = 10
    image_size: int = 96
    reply_tokens: int = 7
    """What the navigator's own replies take on average, their end included."""
    token_budget: int = 8192
    """Padded tokens a micro-batch."""
    seed: int = 0

    @property
    def environments(self) -> int:
        return self.groups * self.size

    @property
    def sampling(self) -> Sampling:
        return Sampling(max_tokens=self.reply_tokens, min_action_tokens=1)


class RecordedWalk:
    """Shows a recorded walk, whatever it is told; pays 1 at the end of every other episode, by its seed."""

    def __init__(self, walks: Sequence[Walk]) -> None:
        self.walks = walks

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        self.seed, self.turn, self.walk = seed, 0, self.walks[options["walk"]]
        return self.walk[0], {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        self.turn += 1
        over = self.turn == len(self.walk) - 1
        return self.walk[self.turn], float(over and self.seed % 2), False, over, {}

    def close(self) -> None:
        pass


def make_checkpoint(folder: Path, load: Load) -> None:
    """An untrained tiny checkpoint with a tokenizer of the navigation world: it samples replies of full length."""
    env = Navigation(image_size=load.image_size, max_turns=load.turns)
    shown = [step for demo in range(DEMOS) for step in demonstrate(env, derive(load.seed, "corpus", demo))]
    corpus = [text for step in shown for text in (step.observation.text, step.executed)]
    disable_progress_bar()
    make_tiny(folder, corpus=corpus, spec=TinySpec(image_size=load.image_size), seed=load.seed)


def make_walks(load: Load) -> list[Walk]:
    """One walk a group: looking around from the start, which never reaches the goal."""
    env = Navigation(image_size=load.image_size, max_turns=load.turns)
    walks = []
    for group in range(load.groups):
        shown, info = env.reset(seed=derive(load.seed, "walk", group))
        seen = [observe(shown, info)]
        for turn in range(load.turns):
            shown, _, _, _, info = env.step(json.dumps(dict(zip(MOVE_KEYS, (15.0 * (1 + turn % 3), 0.0)))))
            seen.append(observe(shown, info))
        walks.append(tuple(seen))
    return walks


def make_specs(load: Load) -> list[EpisodeSpec]:
    """Every group's episodes."""
    return [
        EpisodeSpec(id=f"{group}-{copy}", group=group, seed=group * load.size + copy, options={"walk": group})
        for group in range(load.groups)
        for copy in range(load.size)
    ]


def open_checkpoint(folder: Path) -> ChatVLM:
    """The checkpoint, on one thread."""
    torch.set_num_threads(1)
    return load_chat(folder)
