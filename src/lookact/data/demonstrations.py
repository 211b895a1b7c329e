"""Demonstrations as episodes: SFT packs and scores them as it does what a policy sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lookact.text.chat import expand_images, following, opening
from lookact.types import Decision, Demonstration, Episode, Image, Turn


@dataclass(frozen=True)
class ChatTemplate:
    """How a chat model writes a conversation down."""

    encode: Callable[[str], list[int]]
    image_tokens: Callable[[Image], int]
    image_pad_id: int
    end_id: int
    system: str = ""


def demo_episode(demo: Demonstration, template: ChatTemplate, *, name: str) -> Episode:
    """The conversation as the policy itself would have had it: prompts, images, and the expert's replies as units."""
    turns = []
    for index, (observation, reply, imitate) in enumerate(zip(demo.observations, demo.replies, demo.imitate)):
        n = len(observation.images)
        text = (
            opening(template.system, observation.text, n) if index == 0 else following(observation.text, n, closed=True)
        )
        counts = [template.image_tokens(image) for image in observation.images.values()]
        ids = np.array([*template.encode(reply), template.end_id], dtype=np.int64)
        decision = Decision(
            action=reply,
            logprobs=np.zeros(len(ids), dtype=np.float32),
            mask=np.full(len(ids), imitate),
            token_ids=ids,
            prompt_ids=expand_images(template.encode(text), template.image_pad_id, counts),
            fresh=index == 0,
        )
        last = index == len(demo.replies) - 1
        turns.append(Turn(observation, decision, 0.0, terminated=last, truncated=False))
    return Episode(id=name, group=0, seed=0, turns=tuple(turns))
