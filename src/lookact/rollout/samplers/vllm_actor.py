"""Decides for many conversations with an engine that is not the learner's own model.

Token in, token out: an engine is sent the ids of the whole conversation as they were sampled, and what it read and
which weights it replied with is checked on every reply. A conversation lives here alone, so that an engine that
crashed and came back is simply asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lookact.errors import StaleWeights, TokenMismatch
from lookact.models.vlm.images import fit_image
from lookact.rollout.samplers.hf import make_decision
from lookact.rollout.samplers.settings import Sampling
from lookact.rollout.samplers.token_engine import Ids, TokenEngine, TokenPrompt, TokenReply, sampling_params
from lookact.seeding import derive
from lookact.text.chat import expand_images, following, opening
from lookact.types import Decision, Image, Observation

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM


@dataclass
class _Row:
    seed: int
    first: Observation | None = None
    turns: int = 0
    ids: list[int] = field(default_factory=list)
    """The context as sent: one placeholder an image."""
    read: list[int] = field(default_factory=list)
    """The context as read: a placeholder for each vision token."""
    images: list[Image] = field(default_factory=list)


@dataclass(frozen=True)
class _Block:
    """A turn's addition to a row's context."""

    sent: list[int]
    read: Ids
    images: list[Image]
    fresh: bool


class VllmSampler:
    """The `Actor` over a `TokenEngine`; prompts, masks and log-probs are those of `HFSampler`."""

    def __init__(
        self, chat: ChatVLM, engine: TokenEngine, sampling: Sampling, *, system: str = "", version: int = 0
    ) -> None:
        self.chat, self.engine, self.sampling = chat, engine, sampling
        self.system, self.version = system, version
        self.params = sampling_params(sampling, chat)
        self._rows: dict[int, _Row] = {}

    def begin(self, row: int, seed: int) -> None:
        self._rows[row] = _Row(seed)

    def end(self, row: int) -> None:
        self._rows.pop(row, None)

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        """One reply a row; a row's context grows only when all replies are there."""
        states = [self._rows[row] for row in rows]
        blocks = [self._block(state, observation) for state, observation in zip(states, observations)]
        prompts = [self._prompt(state, block) for state, block in zip(states, blocks)]
        replies = self.engine.generate(prompts, self.params)
        return [
            self._decide(state, observation, block, reply)
            for state, observation, block, reply in zip(states, observations, blocks, replies)
        ]

    def _block(self, state: _Row, observation: Observation) -> _Block:
        images = [fit_image(self.chat.image_processor, image) for image in observation.images.values()]
        # the last token is not yet in a cache, as HFSampler counts
        full = len(state.read) - 1 + self.sampling.max_tokens >= self.sampling.max_context
        fresh = state.first is None or full
        if not fresh:
            text = following(observation.text, len(images), closed=state.read[-1] == self.chat.end_id)
        elif state.first is None:
            text = opening(self.system, observation.text, len(images))
        else:
            # a rebuilt context must repeat what it was asked to do
            text = opening(self.system, f"{state.first.text}\n{observation.text}", len(images))
        sent = self.chat.encode_text(text)
        counts = self.chat.image_token_counts(self.chat.encode_images(images)[1])
        return _Block(sent, expand_images(sent, self.chat.image_pad_id, counts), images, fresh)

    def _prompt(self, state: _Row, block: _Block) -> TokenPrompt:
        past, seen = ([], []) if block.fresh else (state.ids, state.images)
        seed = derive(state.seed, "sample", state.turns)
        return TokenPrompt([*past, *block.sent], (*seen, *block.images), seed)

    def _decide(self, state: _Row, observation: Observation, block: _Block, reply: TokenReply) -> Decision:
        if block.fresh:
            state.ids, state.read, state.images = [], [], []
        state.first = state.first or observation
        self._check(np.concatenate([np.asarray(state.read, dtype=np.int64), block.read]), reply)
        sampled = reply.token_ids.tolist()
        state.ids += [*block.sent, *sampled]
        state.read += [*block.read.tolist(), *sampled]
        state.images += block.images
        state.turns += 1
        return make_decision(
            self.chat.tokenizer, self.sampling, block.read, reply.token_ids, reply.logprobs, fresh=block.fresh
        )

    def _check(self, expected: Ids, reply: TokenReply) -> None:
        if reply.version != self.version:
            raise StaleWeights(
                f"the engine replied with weights {reply.version}, the learner is at {self.version}: push them first"
            )
        if not np.array_equal(reply.prompt_ids, expected):
            length = min(len(expected), len(reply.prompt_ids))
            differs = np.flatnonzero(expected[:length] != reply.prompt_ids[:length])
            at = int(differs[0]) if len(differs) else length
            raise TokenMismatch(
                f"the engine read {len(reply.prompt_ids)} prompt tokens where the learner counts {len(expected)}, "
                f"the first other one at {at}: start it from the learner's own checkpoint"
            )
        if not len(reply.token_ids) == len(reply.logprobs) > 0:
            raise TokenMismatch(
                f"the engine gave {len(reply.logprobs)} log-probs for {len(reply.token_ids)} tokens: one a token is due"
            )
