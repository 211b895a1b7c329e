"""Demonstrations as episodes: SFT packs and scores them as it does what a policy sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.text.chat import Spelling
from lookact.types import Decision, Demonstration, Episode, Image, Turn


@dataclass(frozen=True)
class ChatTemplate:
    """How a chat model writes a conversation down."""

    spelling: Spelling
    encode: Callable[[str, Sequence[Image]], NDArray[np.int64]]
    """Ids of a text with its images written out."""
    end_id: int
    system: str = ""


def demo_episode(demo: Demonstration, template: ChatTemplate, *, name: str) -> Episode:
    """The conversation as the policy itself would have had it: prompts, images, and the expert's replies as units."""
    turns = []
    for index, (observation, reply, imitate) in enumerate(zip(demo.observations, demo.replies, demo.imitate)):
        images = list(observation.images.values())
        if index == 0:
            text = template.spelling.opening(template.system, observation.text, len(images))
        else:
            text = template.spelling.following(observation.text, len(images), closed=True)
        ids = np.append(template.encode(template.spelling.reply(reply), ()), template.end_id)
        decision = Decision(
            action=reply,
            logprobs=np.zeros(len(ids), dtype=np.float32),
            mask=np.full(len(ids), imitate),
            token_ids=ids,
            prompt_ids=template.encode(text, images),
            fresh=index == 0,
        )
        last = index == len(demo.replies) - 1
        turns.append(Turn(observation, decision, 0.0, terminated=last, truncated=False))
    return Episode(id=name, group=0, seed=0, turns=tuple(turns))
