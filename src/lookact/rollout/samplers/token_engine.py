"""What an engine apart from the learner must do: take token ids and images, give token ids and log-probs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lookact.types import Image

if TYPE_CHECKING:
    from torch import Tensor

    from lookact.models.vlm.policy import ChatVLM
    from lookact.rollout.samplers.settings import Sampling

Ids = NDArray[np.int64]
BANNED_BIAS = -1e9
"""Added to the logit of a token that must never come: no temperature brings it back."""


@dataclass(frozen=True)
class TokenPrompt:
    """A whole conversation so far. An image stands in `ids` as one placeholder; the engine repeats it."""

    ids: list[int]
    images: tuple[Image, ...]
    seed: int
    """Of this reply: asked again, the same weights give the same reply."""


@dataclass(frozen=True)
class TokenReply:
    """What came of one prompt."""

    prompt_ids: Ids
    """(p,) as the engine read it, every image's placeholder repeated."""
    token_ids: Ids
    """(u,) as sampled, the token that ends the reply included."""
    logprobs: NDArray[np.float32]
    """(u,) under the distribution that was sampled from."""
    version: int
    """Of the weights that sampled it."""


class TokenEngine(Protocol):
    """Samples replies; keeps no conversation of its own, so that a reply can always be asked for again."""

    def generate(self, prompts: Sequence[TokenPrompt], params: Mapping[str, Any]) -> list[TokenReply]: ...

    def load(self, state: Mapping[str, Tensor], version: int) -> dict[str, float]:
        """Takes over weights by their Hugging Face names, forgets what it cached, and tells each one's norm as read."""
        ...

    def close(self) -> None: ...


def sampling_params(sampling: Sampling, chat: ChatVLM) -> dict[str, Any]:
    """`sampling` in vLLM's words; ids that the learner never scores are never sampled."""
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "logprobs": 0,
        "stop_token_ids": [chat.end_id],
        "logit_bias": {int(id): BANNED_BIAS for id in chat.banned.nonzero().flatten()},
        "detokenize": False,
    }
