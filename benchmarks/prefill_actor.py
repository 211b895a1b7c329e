"""The actor that LookAct does without: it reads the whole conversation again in every turn.

Otherwise it is the actor of `rollout.hf_actor`: batched, the same prompts, the same random streams, keys and values
kept while a reply is sampled. Pictures are cut into patches once and kept; the vision tower runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from lookact.models.vlm.policy import ChatVLM
from lookact.ops.logprobs import adjust_logits, gather_logprobs, sample_tokens
from lookact.rollout.samplers.hf import Ids, make_decision
from lookact.rollout.samplers.kv_cache import KVCache, extend, left_pad
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import numpy_rng
from lookact.text.chat import expand_images
from lookact.types import Decision, Observation


@dataclass
class _Row:
    rng: np.random.Generator
    ids: list[Ids] = field(default_factory=list)
    pixels: list[Tensor] = field(default_factory=list)
    grids: list[Tensor] = field(default_factory=list)


class PrefillActor:
    """The `Actor` protocol; prompts, replies and log-probabilities equal those of `HFSampler`."""

    version = 0

    def __init__(self, chat: ChatVLM, sampling: Sampling) -> None:
        self.chat, self.sampling = chat, sampling
        self._rows: dict[int, _Row] = {}
        self._encoded: dict[str, list[int]] = {}

    def begin(self, row: int, seed: int) -> None:
        self._rows[row] = _Row(numpy_rng(seed, "sample"))

    def end(self, row: int) -> None:
        self._rows.pop(row, None)

    @torch.no_grad()
    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        self.chat.eval()
        states = [self._rows[row] for row in rows]
        first = [not state.ids for state in states]
        prompts = self._extend(states, observations)
        ids, real = left_pad([np.concatenate(state.ids) for state in states], self.chat.device)
        grids = torch.cat([grid for state in states for grid in state.grids])
        pixels = torch.cat([part for state in states for part in state.pixels])
        positions = self.chat.rope_positions(ids, grids, real)
        cache = KVCache()
        hidden = extend(self.chat, cache, real, ids, positions, pixels, grids)
        replies, logprobs, counts = self._sample(states, hidden, real, positions, cache)
        for state, reply, n in zip(states, replies, counts):
            state.ids.append(reply[:n])
        return [
            make_decision(self.chat, self.sampling, prompts[i], replies[i, :n], logprobs[i, :n], fresh=first[i])
            for i, n in enumerate(counts)
        ]

    def _extend(self, states: Sequence[_Row], observations: Sequence[Observation]) -> list[Ids]:
        """Adds the new user turns to the conversations and returns their ids."""
        images = [list(observation.images.values()) for observation in observations]
        pixels, grids = self.chat.encode_images([image for row in images for image in row])
        grids_by_row = torch.split(grids, [len(row) for row in images])
        pixels_by_row = torch.split(pixels, [int(row.prod(dim=1).sum()) for row in grids_by_row])
        prompts = []
        for state, observation, own, patches in zip(states, observations, grids_by_row, pixels_by_row):
            text = self._user_turn(state, observation)
            if text not in self._encoded:
                self._encoded[text] = self.chat.encode_text(text)
            counts = self.chat.image_token_counts(own)
            prompts.append(expand_images(self._encoded[text], self.chat.image_pad_id, counts))
            state.ids.append(prompts[-1])
            state.pixels.append(patches)
            state.grids.append(own)
        return prompts

    def _user_turn(self, state: _Row, observation: Observation) -> str:
        n = len(observation.images)
        if not state.ids:
            return self.chat.spelling.opening("", observation.text, n)
        return self.chat.spelling.following(observation.text, n, closed=int(state.ids[-1][-1]) == self.chat.end_id)

    def _sample(
        self, states: Sequence[_Row], hidden: Tensor, attend: Tensor, positions: Tensor, cache: KVCache
    ) -> tuple[Ids, NDArray[np.float32], list[int]]:
        """Replies (b, n), their log-probabilities, and their lengths."""
        limit, b = self.sampling.max_tokens, len(states)
        uniforms = torch.from_numpy(np.stack([state.rng.random(limit) for state in states]))
        ids, logprobs = torch.zeros(b, limit, dtype=torch.long), torch.zeros(b, limit)
        unfinished, counts = torch.ones(b, dtype=torch.bool), torch.zeros(b, dtype=torch.long)
        # the last column of every row is a token, and the highest position of its row
        following_position = positions[:, :, -1].amax(dim=0) + 1
        for step in range(limit):
            ids[:, step], logprobs[:, step] = self._draw(hidden, uniforms[:, step])
            counts += unfinished
            unfinished = unfinished & (ids[:, step] != self.chat.end_id)
            if step + 1 == limit or not bool(unfinished.any()):
                break
            attend = torch.cat([attend, unfinished[:, None]], dim=1)
            place = (following_position + step)[None, :, None].expand(3, b, 1)
            hidden = extend(self.chat, cache, attend, ids[:, step : step + 1], place)
        return ids.numpy(), logprobs.numpy(), counts.tolist()

    def _draw(self, hidden: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        s = self.sampling
        logits = adjust_logits(
            linear(hidden, self.chat.output_weight),
            temperature=s.temperature,
            banned=self.chat.banned,
            top_k=s.top_k,
            top_p=s.top_p,
        )
        ids = sample_tokens(logits, uniforms)
        return ids, gather_logprobs(logits, ids)
