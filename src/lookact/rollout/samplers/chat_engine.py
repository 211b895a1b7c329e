"""Batched generation for independent conversations with images, as a judge server needs it.

Greedy replies do not depend on the batch they are computed in. Padding and batch size change sums in their last bits,
which matters only where two tokens are nearly equally likely: such a near tie is settled by computing that row alone,
so that every greedy token is the one that a row asked alone would get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jinja2 import TemplateError
from numpy.typing import NDArray
from torch import Tensor

from lookact.errors import ConfigError, DataError, TokenMismatch
from lookact.judges.server.batching import Prompt, Reply, TokenLogprob
from lookact.models.vlm.families import OTHER
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.logprobs import NEVER, adjust_logits, output_logits, sample_tokens
from lookact.rollout.samplers.kv_cache import KVCache, extend, left_pad
from lookact.seeding import numpy_rng

NEAR_TIE = {torch.float32: 2e-3, torch.float16: 0.1, torch.bfloat16: 0.5}
"""Logits closer than this may change places between batches: some ten times the rounding of the type."""
BLOCK = 16
"""Tokens that `SingleSequenceDecoder` feeds at once."""
UNFINISHED = Reply(finish="")


class SingleSequenceDecoder:
    """One row decoded by itself, so that its result is the same whatever batch the row is answered in.

    The prompt is one block, then sampled tokens in whole blocks that are kept, then the rest, which is not.

    The borders of blocks depend on the tokens alone and not on when they were fed: two streams of the same tokens
    agree to the last bit.
    """

    def __init__(self, chat: ChatVLM, prompt: NDArray[np.int64], pixels: Tensor, grids: Tensor) -> None:
        self.chat = chat
        self._cache = KVCache()
        self._sampled = 0
        ids, attend = left_pad([prompt], chat.device)
        positions = chat.rope_positions(ids, grids, attend)
        self._start = int(positions.max()) + 1
        self._last = extend(chat, self._cache, attend, ids, positions, pixels, grids)

    def hidden(self, sampled: Sequence[int]) -> Tensor:
        """The last hidden state (1, d) after the prompt and `sampled`, which goes on where the last call ended."""
        if not sampled:
            return self._last
        while len(sampled) - self._sampled > BLOCK:
            self._feed(sampled[self._sampled : self._sampled + BLOCK])
            self._sampled += BLOCK
        rest = sampled[self._sampled :]
        hidden = self._feed(rest)
        self._cache.advance(-len(rest))
        return hidden

    def _feed(self, tokens: Sequence[int]) -> Tensor:
        ids = torch.tensor([list(tokens)], device=self.chat.device)
        first = self._start + self._sampled
        positions = torch.arange(first, first + len(tokens), device=ids.device).expand(3, 1, -1)
        total = self._cache.get_seq_length() + len(tokens)
        return extend(self.chat, self._cache, ids.new_ones(1, total, dtype=torch.bool), ids, positions)


@dataclass
class _Row:
    index: int
    prompt: Prompt
    ids: NDArray[np.int64]
    pixels: Tensor
    grids: Tensor
    uniforms: NDArray[np.float64]
    sampled: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    alone: SingleSequenceDecoder | None = None
    """Made at the first near tie."""


class ChatEngine:
    """A `Generate` over a model in this process; not to be called from two threads at once."""

    def __init__(self, chat: ChatVLM, *, max_context: int = 8192, batch_tokens: int = 32768) -> None:
        if chat.family is OTHER:
            raise ConfigError(f"a {chat.config.model_type} model is of no known family: serve one of docs/models.md")
        self.chat, self.max_context, self.batch_tokens = chat, max_context, batch_tokens
        self.near_tie = NEAR_TIE.get(chat.output_weight.dtype, 2e-3)
        self.control = control_tokens(chat.tokenizer)
        self.settled = 0
        """Near ties so far."""
        chat.eval()

    @torch.inference_mode()
    def __call__(self, prompts: Sequence[Prompt], dropped: Callable[[int], bool]) -> Iterator[tuple[int, Reply]]:
        rows = []
        for index, prompt in enumerate(prompts):
            try:
                rows.append(self._encode(index, prompt))
            except (DataError, TokenMismatch, TemplateError, ValueError) as error:
                yield index, Reply(error=" ".join(str(error).split()))
        for group in pack(rows, self.batch_tokens):
            yield from self._answer(group, dropped)

    def _encode(self, index: int, prompt: Prompt) -> _Row:
        images = [part for message in prompt.messages for part in message.parts if not isinstance(part, str)]
        pixels, grids = self.chat.encode_images(images)
        text = self.chat.tokenizer.apply_chat_template(
            [{"role": message.role, "content": written(message.parts, self.control)} for message in prompt.messages],
            add_generation_prompt=True,
            tokenize=False,
        )
        ids = self.chat.encode_prompt(text, images)
        if len(ids) + prompt.max_tokens > self.max_context:
            raise DataError(
                f"{len(ids)} prompt tokens and max_tokens {prompt.max_tokens} exceed the context, {self.max_context}: "
                "send less text, fewer or smaller images"
            )
        drawn = prompt.max_tokens if prompt.temperature > 0 else 0
        uniforms = numpy_rng(prompt.seed, "sample").random(drawn)
        return _Row(index, prompt, ids, pixels.to(self.chat.device), grids.to(self.chat.device), uniforms)

    def _answer(self, rows: list[_Row], dropped: Callable[[int], bool]) -> Iterator[tuple[int, Reply]]:
        """Prefill, then decode steps; rows leave as they finish, and the batch shrinks when half have left."""
        ids, attend = left_pad([row.ids for row in rows], self.chat.device)
        grids = torch.cat([row.grids for row in rows])
        positions = self.chat.rope_positions(ids, grids, attend)
        following = positions.masked_fill(~attend, -1).amax(dim=(0, 2)) + 1
        cache = KVCache()
        hidden = extend(self.chat, cache, attend, ids, positions, torch.cat([row.pixels for row in rows]), grids)
        running = torch.ones(len(rows), dtype=torch.bool)
        while True:
            tokens = self._choose(rows, running, hidden)
            for i in running.nonzero().flatten().tolist():
                rows[i].sampled.append(tokens[i])
                reply = self._reply(rows[i])
                if reply.finish:
                    running[i] = False
                elif dropped(rows[i].index):
                    running[i] = False
                    continue
                if reply.finish or rows[i].prompt.streamed:
                    yield rows[i].index, reply
            if not running.any():
                return
            if 2 * int(running.sum()) <= len(rows):
                keep = running.nonzero().flatten()
                rows, tokens = [rows[i] for i in keep], [tokens[i] for i in keep]
                cache.select(keep.to(attend.device))
                attend, following, running = attend[keep], following[keep], running[keep]
            column = torch.tensor(tokens, device=attend.device)[:, None]
            attend = torch.cat([attend, running.to(attend.device)[:, None]], dim=1)
            hidden = extend(self.chat, cache, attend, column, following[None, :, None].expand(3, -1, 1))
            following = following + 1

    def _choose(self, rows: Sequence[_Row], running: Tensor, hidden: Tensor) -> list[int]:
        """The next token of every row (b,); those of rows that have finished mean nothing."""
        logits = self._logits(hidden)
        best = logits.topk(2, dim=-1)
        tokens: list[int] = best.indices[:, 0].tolist()
        close = (best.values[:, 0] - best.values[:, 1] < self.near_tie).tolist()
        for i in running.nonzero().flatten().tolist():
            prompt = rows[i].prompt
            if prompt.temperature > 0:
                adjusted = adjust_logits(logits[i : i + 1], temperature=prompt.temperature, top_p=prompt.top_p)
                uniform = torch.tensor(rows[i].uniforms[len(rows[i].sampled)], device=logits.device)
                tokens[i] = int(sample_tokens(adjusted, uniform[None]))
            elif close[i]:
                tokens[i] = self._settle(rows[i])
            if prompt.top_logprobs is not None:
                rows[i].logprobs.append(self._logprob(tokens[i], logits[i], prompt.top_logprobs))
        return tokens

    def _logprob(self, token: int, logits: Tensor, count: int) -> TokenLogprob:
        """The token taken and the `count` likeliest at temperature 1, in words."""
        logprobs = logits.log_softmax(dim=-1)
        top = logprobs.topk(count)
        words = [self.chat.tokenizer.decode([index]) for index in (token, *top.indices.tolist())]
        return TokenLogprob(words[0], float(logprobs[token]), tuple(zip(words[1:], top.values.tolist())))

    def _settle(self, row: _Row) -> int:
        """The likeliest next token by a pass over this row alone, the same whatever batch it is in."""
        self.settled += 1
        if row.alone is None:
            row.alone = SingleSequenceDecoder(self.chat, row.ids, row.pixels, row.grids)
        return int(self._logits(row.alone.hidden(row.sampled)).argmax())

    def _logits(self, hidden: Tensor) -> Tensor:
        return output_logits(hidden, self.chat.output_weight).masked_fill(self.chat.banned, NEVER)

    def _reply(self, row: _Row) -> Reply:
        """What the row has come to: whole, or so far, which is told only where it is asked for."""
        prompt = row.prompt
        finish: Literal["stop", "length", ""] = ""
        if row.sampled[-1] == self.chat.end_id:
            finish = "stop"
        elif len(row.sampled) == prompt.max_tokens:
            finish = "length"
        elif not (prompt.stop or prompt.streamed):
            return UNFINISHED
        text = self.chat.tokenizer.decode(row.sampled, skip_special_tokens=True)
        if ends := [at for word in prompt.stop if (at := text.find(word)) >= 0]:
            text, finish = text[: min(ends)], "stop"
        elif not finish:
            text = settled(text, prompt.stop)
        return Reply(text, len(row.ids), len(row.sampled), finish, logprobs=tuple(row.logprobs))


def settled(text: str, stop: Sequence[str]) -> str:
    """As much of an unfinished text as later tokens can't change: no half character, nor what may begin a stop."""
    text = text.rstrip("\ufffd")
    begun = (
        at for word in stop for at in range(max(0, len(text) - len(word) + 1), len(text)) if word.startswith(text[at:])
    )
    return text[: min(begun, default=len(text))]


def control_tokens(tokenizer: Any) -> re.Pattern[str]:
    """What a tokenizer takes for control tokens wherever it stands in a text."""
    found = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True))) or r"(?!)")


def written(parts: Sequence[str | NDArray[np.uint8]], control: re.Pattern[str]) -> str | list[dict[str, str]]:
    """A message's content as chat templates take it; control tokens spelt out in a text stay mere text."""
    texts = [
        control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", part) if isinstance(part, str) else None
        for part in parts
    ]
    if len(texts) == 1 and texts[0] is not None:
        return texts[0]
    return [{"type": "image"} if text is None else {"type": "text", "text": text} for text in texts]


def pack(rows: Sequence[_Row], tokens: int) -> Iterator[list[_Row]]:
    """Rows in groups of like length whose padded size stays within `tokens`; a longer row goes alone."""
    group: list[_Row] = []
    # longest first: a group's padded size is known by its first row
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        if group and (len(group) + 1) * len(group[0].ids) > tokens:
            yield group
            group = []
        group.append(row)
    if group:
        yield group
