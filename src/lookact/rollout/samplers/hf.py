"""Hugging Face sampler: batched multi-turn generation with the learner's own model and a KV cache kept across turns.

Token in, token out: sampled ids are kept as they are and only the new user turn is encoded. Each turn's block is
appended to the cache left-padded, so that every row samples from the same column. The last sampled token of a turn
is fed with the next turn's block, which saves a forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from lookact.errors import EngineError
from lookact.ops.logprobs import adjust_logits, gather_logprobs, sample_tokens
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import numpy_rng
from lookact.text.actions import mask_action_tokens
from lookact.text.chat import expand_images, following, opening
from lookact.types import Decision, Observation

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM

Ids = NDArray[np.int64]


@dataclass
class _Row:
    rng: np.random.Generator
    first: Observation | None = None
    pending: list[int] = field(default_factory=list)
    """Sampled, but not yet in the cache."""
    closed: bool = False
    position: int = 0
    """The next rotary position."""
    length: int = 0


class HFSampler:
    """The in-process sampler (`Actor`): replies come from the learner's own model."""

    def __init__(self, chat: ChatVLM, sampling: Sampling, *, system: str = "", version: int = 0) -> None:
        self.chat, self.sampling, self.system, self.version = chat, sampling, system, version
        self._rows: dict[int, _Row] = {}
        self._live: list[int] = []
        self._cache = KVCache()
        self._attend = torch.zeros(0, 0, dtype=torch.bool)
        self._encoded: dict[str, list[int]] = {}

    def begin(self, row: int, seed: int) -> None:
        self._rows[row] = _Row(numpy_rng(seed, "sample"))

    def end(self, row: int) -> None:
        self._rows.pop(row, None)

    @torch.no_grad()
    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        """One reply a row. Rows of one call take their turns together; new rows can't join old ones."""
        states = [self._rows[row] for row in rows]
        self._select_rows(rows, states)
        self.chat.eval()
        fresh = [self._restarts_context(state, observation) for state, observation in zip(states, observations)]
        prompts, pixels, grids = self._prompts(states, observations, fresh)
        hidden = self._prefill(states, prompts, pixels, grids)
        ids, logprobs, counts = self._decode(states, hidden)
        return [
            self._decide(state, prompt, ids[i, :n], logprobs[i, :n], is_fresh)
            for i, (state, prompt, n, is_fresh) in enumerate(zip(states, prompts, counts, fresh))
        ]

    def _select_rows(self, rows: Sequence[int], states: Sequence[_Row]) -> None:
        """Keeps exactly these rows in the cache, in this order."""
        if all(state.first is None for state in states):
            self._cache = KVCache()
            self._attend = torch.zeros(len(rows), 0, dtype=torch.bool, device=self.chat.device)
        elif list(rows) != self._live:
            place = {row: i for i, row in enumerate(self._live)}
            if any(row not in place for row in rows):
                raise EngineError("new conversations can't join a running batch: begin all rows of a batch together")
            keep = torch.tensor([place[row] for row in rows], device=self.chat.device)
            self._cache.select(keep)
            self._attend = self._attend[keep]
        self._live = list(rows)

    def _restarts_context(self, state: _Row, observation: Observation) -> bool:
        """Whether this is a first turn, or one that would not fit: the row's past is then hidden from it."""
        if state.first is None:
            state.first = observation
            return True
        if state.length + self.sampling.max_tokens < self.sampling.max_context:
            return False
        state.pending, state.position, state.length = [], 0, 0
        return True

    def _prompts(
        self, states: Sequence[_Row], observations: Sequence[Observation], fresh: Sequence[bool]
    ) -> tuple[list[Ids], Tensor, Tensor]:
        images = [image for observation in observations for image in observation.images.values()]
        pixels, grids = self.chat.encode_images(images)
        counts = self.chat.image_token_counts(grids)
        prompts, done = [], 0
        for i, (state, observation, is_fresh) in enumerate(zip(states, observations, fresh)):
            n = len(observation.images)
            if is_fresh:
                # the row's past is hidden from it
                self._attend[i] = False
            block = turn_text(self.system, state.first, observation, fresh=is_fresh, closed=state.closed)
            prompts.append(expand_images(self._encode(block), self.chat.image_pad_id, counts[done : done + n]))
            done += n
        return prompts, pixels, grids

    def _encode(self, text: str) -> list[int]:
        if text not in self._encoded:
            self._encoded[text] = self.chat.encode_text(text)
        return self._encoded[text]

    def _prefill(self, states: Sequence[_Row], prompts: Sequence[Ids], pixels: Tensor, grids: Tensor) -> Tensor:
        """Prefill: appends every row's pending tokens and prompt to the cache; returns the last hidden state (b, d)."""
        blocks = [np.append(np.array(state.pending, dtype=np.int64), prompt) for state, prompt in zip(states, prompts)]
        ids, real = left_pad(blocks, self.chat.device)
        positions = self.chat.rope_positions(ids, grids, real)
        offsets = torch.tensor([state.position for state in states], device=ids.device)
        positions = positions + offsets[None, :, None]
        hidden = self._forward(ids, real, positions, pixels, grids)
        reached = positions.masked_fill(~real, -1).amax(dim=(0, 2)).tolist()
        for state, block, top in zip(states, blocks, reached):
            state.position, state.length, state.pending = top + 1, state.length + len(block), []
        return hidden

    def _forward(
        self, ids: Tensor, real: Tensor, positions: Tensor, pixels: Tensor | None = None, grids: Tensor | None = None
    ) -> Tensor:
        """One pass over new columns (b, n); returns the last column's hidden state (b, d)."""
        self._attend = torch.cat([self._attend, real], dim=1)
        return extend(self.chat, self._cache, self._attend, ids, positions, pixels, grids)

    def _decode(self, states: Sequence[_Row], hidden: Tensor) -> tuple[Ids, NDArray[np.float32], list[int]]:
        """Decodes until every row has closed its reply or reached the limit: (b, n) ids and log-probs, lengths."""
        limit, b = self.sampling.max_tokens, len(states)
        uniforms = torch.from_numpy(np.stack([state.rng.random(limit) for state in states])).to(hidden.device)
        ids = torch.zeros(b, limit, dtype=torch.long, device=hidden.device)
        logprobs = torch.zeros(b, limit, device=hidden.device)
        open_rows = torch.ones(b, dtype=torch.bool, device=hidden.device)
        counts = torch.zeros(b, dtype=torch.long, device=hidden.device)
        positions = torch.tensor([state.position for state in states], device=hidden.device)
        for step in range(limit):
            ids[:, step], logprobs[:, step] = self._sample(hidden, uniforms[:, step])
            counts += open_rows
            open_rows = open_rows & (ids[:, step] != self.chat.end_id)
            if step + 1 == limit or not bool(open_rows.any()):
                break
            hidden = self._forward(
                ids[:, step : step + 1], open_rows[:, None], (positions + step)[None, :, None].expand(3, b, 1)
            )
        return ids.cpu().numpy(), logprobs.float().cpu().numpy(), counts.tolist()

    def _sample(self, hidden: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        s = self.sampling
        logits = adjust_logits(
            linear(hidden, self.chat.output_weight),
            temperature=s.temperature,
            banned=self.chat.banned,
            top_k=s.top_k,
            top_p=s.top_p,
        )
        ids = logits.argmax(-1) if s.greedy else sample_tokens(logits, uniforms)
        return ids, gather_logprobs(logits, ids)

    def _decide(self, state: _Row, prompt: Ids, ids: Ids, logprobs: NDArray[np.float32], fresh: bool) -> Decision:
        state.pending = [int(ids[-1])]
        state.closed = state.pending[0] == self.chat.end_id
        state.position += len(ids) - 1
        state.length += len(ids) - 1
        return make_decision(self.chat.tokenizer, self.sampling, prompt, ids, logprobs, fresh=fresh)


def turn_text(system: str, first: Observation | None, observation: Observation, *, fresh: bool, closed: bool) -> str:
    """The next turn in the chat format; a rebuilt context repeats the first observation, which holds the task."""
    text, images = observation.text, len(observation.images)
    if not fresh:
        return following(text, images, closed=closed)
    if first is not None and first is not observation:
        text = f"{first.text}\n{text}"
    return opening(system, text, images)


def make_decision(
    tokenizer: Any, sampling: Sampling, prompt: Ids, ids: Ids, logprobs: NDArray[np.float32], *, fresh: bool
) -> Decision:
    """A reply (u,) to a prompt (p,) with its action found and its action's tokens marked."""
    found = mask_action_tokens(
        ids, tokenizer, min_tokens=sampling.min_action_tokens, max_tokens=sampling.max_action_tokens
    )
    return Decision(
        action=tokenizer.decode(ids, skip_special_tokens=True),
        logprobs=logprobs,
        mask=np.asarray(found.mask, dtype=bool),
        token_ids=ids.copy(),
        prompt_ids=prompt,
        fresh=fresh,
        mask_method=found.method,
    )


class KVCache:
    """Key-value cache of many rows, written in place: a token costs its own size, not a copy of the past.

    It has what a Hugging Face attention layer asks of a cache: `update` for every layer, in order.
    """

    def __init__(self) -> None:
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns held, padding included."""
        return self._length

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Appends (b, heads, n, d) and returns everything so far, as views."""
        start, end = self._length, self._length + keys.shape[2]
        if layer_idx == len(self._layers):
            self._layers.append((_buffer(keys, end), _buffer(values, end)))
        elif self._layers[layer_idx][0].shape[2] < end:
            self._layers[layer_idx] = tuple(_grown(old, end, start) for old in self._layers[layer_idx])  # type: ignore[assignment]
        held_keys, held_values = self._layers[layer_idx]
        held_keys[:, :, start:end] = keys
        held_values[:, :, start:end] = values
        return held_keys[:, :, :end], held_values[:, :, :end]

    def advance(self, columns: int) -> None:
        """The forward pass that appended `columns` to every layer is over."""
        self._length += columns

    def select(self, rows: Tensor) -> None:
        """Keeps only these rows, in this order."""
        self._layers = [(keys[rows], values[rows]) for keys, values in self._layers]


def _buffer(like: Tensor, length: int) -> Tensor:
    b, heads, _, d = like.shape
    return torch.zeros(b, heads, _capacity(length), d, dtype=like.dtype, device=like.device)


def _grown(old: Tensor, length: int, used: int) -> Tensor:
    new = _buffer(old, length)
    new[:, :, :used] = old[:, :, :used]
    return new


def _capacity(length: int) -> int:
    # half as much again, so that growth copies a bounded number of times
    return max(128, length + length // 2)


def left_pad(blocks: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Left-padded ids (b, n) of ragged blocks, and the mask (b, n) of real tokens."""
    width = max(len(block) for block in blocks)
    ids = torch.zeros(len(blocks), width, dtype=torch.long)
    real = torch.zeros(len(blocks), width, dtype=torch.bool)
    for i, block in enumerate(blocks):
        ids[i, width - len(block) :] = torch.from_numpy(block)
        real[i, width - len(block) :] = True
    return ids.to(device), real.to(device)


def extend(
    chat: ChatVLM,
    cache: KVCache,
    attend: Tensor,
    ids: Tensor,
    positions: Tensor,
    pixels: Tensor | None = None,
    grids: Tensor | None = None,
) -> Tensor:
    """Forward pass over new columns (b, n), appended to the cache; returns the last one's hidden state (b, d).

    `attend` (b, past + n) is True on real tokens, the new columns included; `positions` (3, b, n) are rotary.
    """
    b, n = ids.shape
    past = attend.shape[1] - n
    visible = attend[:, None, None, :]
    if n > 1:
        query = torch.arange(past, past + n, device=ids.device)[:, None]
        key = torch.arange(past + n, device=ids.device)[None, :]
        # padding looks at itself, since a row of nothing but masked keys would give NaN
        visible = (visible & (key <= query)) | (key == query)
    # the last layer need not run where nobody reads its output
    last = torch.full((b, 1), n - 1, device=ids.device)
    hidden = chat.backbone(ids, visible, positions, () if pixels is None else pixels, grids, cache=cache, keep=last)
    cache.advance(n)
    return hidden[:, -1]
