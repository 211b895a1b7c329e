"""Hugging Face sampler: batched multi-turn generation with the learner's own model and a KV cache kept across turns.

Token in, token out: sampled ids are kept as they are and only the new user turn is encoded. Each turn's block is
appended to the cache left-padded, so that every row samples from the same column. The last sampled token of a turn
is fed with the next turn's block, which saves a forward pass.

Without reuse every turn reads its whole conversation again; a model of no known family is always sampled so, by its own
generation and one row after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.models.vlm.families import OTHER
from lookact.models.vlm.families.other import generate, model_inputs
from lookact.ops.logprobs import adjust_logits, gather_logprobs, output_logits, sample_tokens
from lookact.rollout.samplers.kv_cache import KVCache, Layers, extend, left_pad
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import numpy_rng
from lookact.text.actions import mask_action_tokens
from lookact.text.chat import THOUGHT, THOUGHT_END
from lookact.types import Decision, Image, Observation

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM

Ids = NDArray[np.int64]


@dataclass(eq=False)
class _Row:
    rng: np.random.Generator
    first: Observation | None = None
    pending: list[int] = field(default_factory=list)
    """Sampled, but not yet in the cache."""
    closed: bool = False
    position: int = 0
    """The next rotary position."""
    length: int = 0
    parked: Layers = field(default_factory=list)
    """Its keys and values (heads, n, d) of each layer while other rows act."""
    shown: list[tuple[str, list[Image]]] = field(default_factory=list)
    """Texts and images of the turns in its context."""
    said: list[str] = field(default_factory=list)
    """Its replies to them, without their thoughts."""
    thought: bool = False
    """Whether a thought stands in the context."""
    read: list[int] = field(default_factory=list)
    """All ids of its context, where turns are read again."""


@dataclass(frozen=True)
class _Block:
    """What a turn adds to a row's context, or the whole of a context that is rebuilt."""

    ids: Ids
    images: list[Image]
    fresh: bool
    recalls: int = 0


class HFSampler:
    """The in-process sampler (`Actor`): replies come from the learner's own model."""

    def __init__(
        self, chat: ChatVLM, sampling: Sampling, *, system: str = "", version: int = 0, reuse: bool = True
    ) -> None:
        self.chat, self.sampling, self.system, self.version = chat, sampling, system, version
        self.reuse = reuse and chat.family is not OTHER
        self._rows: dict[int, _Row] = {}
        self._live: list[_Row] = []
        self._cache = KVCache()
        self._attend = torch.zeros(0, 0, dtype=torch.bool)
        self._encoded: dict[tuple[str, tuple[tuple[int, ...], ...]], Ids] = {}

    def begin(self, row: int, seed: int) -> None:
        self._rows[row] = _Row(numpy_rng(seed, "sample"))

    def end(self, row: int) -> None:
        self._rows.pop(row, None)

    @torch.no_grad()
    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        """One reply a row. Any rows may act together: new ones join, and those left out keep their past."""
        states = [self._rows[row] for row in rows]
        self._select_rows(states)
        self.chat.eval()
        blocks = [self._block(state, observation) for state, observation in zip(states, observations)]
        ids, logprobs, counts = self._continue(states, blocks) if self.reuse else self._reread(states, blocks)
        return [
            self._decide(state, block, ids[i, :n], logprobs[i, :n])
            for i, (state, block, n) in enumerate(zip(states, blocks, counts))
        ]

    def _continue(self, states: list[_Row], blocks: list[_Block]) -> tuple[Ids, NDArray[np.float32], list[int]]:
        """Replies from the keys and values of all turns before."""
        for i, block in enumerate(blocks):
            if block.fresh:
                # the row's past is hidden from it
                self._attend[i] = False
        images = [image for block in blocks for image in block.images]
        hidden = self._prefill(states, [block.ids for block in blocks], *self.chat.encode_images(images))
        return self._decode(states, hidden)

    def _reread(self, states: list[_Row], blocks: list[_Block]) -> tuple[Ids, NDArray[np.float32], list[int]]:
        """Replies to whole conversations, of which nothing was kept but the tokens."""
        for state, block in zip(states, blocks):
            state.read = [*([] if block.fresh else state.read), *block.ids.tolist()]
            state.pending, state.position, state.length = [], 0, 0
        images = [[image for _, shown in state.shown for image in shown] for state in states]
        if self.chat.family is OTHER:
            ids, logprobs, counts = self._generate(states, images)
        else:
            self._cache = KVCache()
            self._attend = torch.zeros(len(states), 0, dtype=torch.bool, device=self.chat.device)
            pixels, grids = self.chat.encode_images([image for shown in images for image in shown])
            hidden = self._prefill(states, [np.array(state.read, dtype=np.int64) for state in states], pixels, grids)
            ids, logprobs, counts = self._decode(states, hidden)
        for i, state in enumerate(states):
            state.read += ids[i, : counts[i]].tolist()
        return ids, logprobs, counts

    def _generate(self, states: list[_Row], images: list[list[Image]]) -> tuple[Ids, NDArray[np.float32], list[int]]:
        """One conversation after the other by the model's own generation."""
        chat, limit = self.chat, self.sampling.max_tokens
        ids, logprobs = np.zeros((len(states), limit), np.int64), np.zeros((len(states), limit), np.float32)
        counts = []
        for row, (state, shown) in enumerate(zip(states, images)):
            context = torch.tensor([state.read], device=chat.device)
            inputs = model_inputs(chat.image_processor, context, *chat.encode_images(shown))
            draws = torch.from_numpy(state.rng.random(limit)).to(chat.device)
            said, scored = generate(chat.causal, inputs, self._draw, draws, end=chat.end_id)
            counts.append(len(said))
            ids[row, : len(said)], logprobs[row, : len(said)] = said, scored
            state.length = len(state.read)
        return ids, logprobs, counts

    def _select_rows(self, states: list[_Row]) -> None:
        """Keeps exactly these rows in the cache, in this order; others that still run are parked."""
        if states == self._live or not self.reuse:
            return
        place = {state: i for i, state in enumerate(self._live)}
        staying = all(state in place for state in states)
        for state in self._rows.values():
            if state in place and not (staying and state in states):
                state.parked = self._cache.columns(place[state], self._attend[place[state]])
        if staying:
            keep = torch.tensor([place[state] for state in states], device=self.chat.device)
            self._cache.select(keep)
            self._attend = self._attend[keep]
        else:
            self._cache, self._attend = KVCache.join([state.parked for state in states], self.chat.device)
        for state in states:
            state.parked = []
        self._live = states

    def _block(self, state: _Row, observation: Observation) -> _Block:
        """The next turn; a first one, one that would not fit or one without past thoughts rebuilds the context."""
        text, images = observation.text, list(observation.images.values())
        stripped = state.thought and self.sampling.thoughts == "strip"
        if stripped:
            turns = [*state.shown, (text, images)]
            told = self.chat.spelling.conversation(self.system, [(t, len(i)) for t, i in turns], state.said)
            ids = self._encode(told, [image for _, shown in turns for image in shown])
            if len(ids) + self.sampling.max_tokens < self.sampling.max_context:
                self._forget(state)
                state.shown = turns
                return _Block(ids, [image for _, shown in turns for image in shown], True, len(turns) - 1)
        full = state.length + self.sampling.max_tokens >= self.sampling.max_context
        fresh = state.first is None or full or stripped
        state.first = state.first or observation
        block = turn_text(self.chat, self.system, state.first, observation, fresh=fresh, closed=state.closed)
        if fresh:
            self._forget(state)
            state.shown, state.said = [], []
            text = text if state.first is observation else f"{state.first.text}\n{text}"
        state.shown.append((text, images))
        return _Block(self._encode(block, images), images, fresh)

    @staticmethod
    def _forget(state: _Row) -> None:
        state.pending, state.position, state.length, state.thought = [], 0, 0, False

    def _encode(self, text: str, images: Sequence[Image]) -> Ids:
        key = (text, tuple(image.shape for image in images))
        if key not in self._encoded:
            self._encoded[key] = self.chat.encode_prompt(text, images)
        return self._encoded[key]

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
        return self._draw(output_logits(hidden, self.chat.output_weight), uniforms)

    def _draw(self, logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (b,) and their log-probs (b,) by logits (b, v) after temperature and filters."""
        s = self.sampling
        logits = adjust_logits(
            logits.float(),
            temperature=s.temperature,
            banned=self.chat.banned,
            top_k=s.top_k,
            top_p=s.top_p,
        )
        ids = logits.argmax(-1) if s.greedy else sample_tokens(logits, uniforms)
        return ids, gather_logprobs(logits, ids)

    def _decide(self, state: _Row, block: _Block, ids: Ids, logprobs: NDArray[np.float32]) -> Decision:
        state.pending = [int(ids[-1])]
        state.closed = state.pending[0] == self.chat.end_id
        state.position += len(ids) - 1
        state.length += len(ids) - 1
        decision = make_decision(self.chat, self.sampling, block.ids, ids, logprobs, fresh=block.fresh)
        if self.sampling.thoughts == "strip":
            thought, closed, said = str(decision.action).rpartition(THOUGHT_END)
            # a thought that was never closed leaves nothing said
            state.said.append("" if self.chat.thinks and not closed else said.strip())
            state.thought |= self.chat.thinks or bool(closed)
        return replace(decision, recalls=block.recalls)


def turn_text(
    chat: ChatVLM, system: str, first: Observation | None, observation: Observation, *, fresh: bool, closed: bool
) -> str:
    """The next turn in the chat format; a rebuilt context repeats the first observation, which holds the task."""
    text, images = observation.text, len(observation.images)
    if not fresh:
        return chat.spelling.following(text, images, closed=closed)
    if first is not None and first is not observation:
        text = f"{first.text}\n{text}"
    return chat.spelling.opening(system, text, images)


def make_decision(
    chat: ChatVLM, sampling: Sampling, prompt: Ids, ids: Ids, logprobs: NDArray[np.float32], *, fresh: bool
) -> Decision:
    """A reply (u,) to a prompt (p,) with its action found and its action's tokens marked."""
    found = mask_action_tokens(
        ids,
        chat.tokenizer,
        min_tokens=sampling.min_action_tokens,
        max_tokens=sampling.max_action_tokens,
        thinking=chat.thinks,
    )
    text = chat.tokenizer.decode(ids, skip_special_tokens=True)
    return Decision(
        # the thought's opening stands in the prompt; without it the thought would be read for an action
        action=THOUGHT + text if chat.thinks else text,
        logprobs=logprobs,
        mask=np.asarray(found.mask, dtype=bool),
        token_ids=ids.copy(),
        prompt_ids=prompt,
        fresh=fresh,
        mask_method=found.method,
    )
