"""Chat templates written piece by piece: sampled ids stay as they are, and only new user turns are encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.errors import TokenMismatch

SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
    "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
"""Qwen's control tokens, in the order of their ids."""

REPLY = "(a reply)"
"""Stands for a reply where a template is cut after it."""
Message = dict[str, Any]
THOUGHT = "<think>\n"
"""What the templates of Thinking checkpoints open a reply with."""
THOUGHT_END = "</think>"

CHAT_TEMPLATE = """\
{%- macro written(content, sighted) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- else -%}
        {%- for part in content -%}
            {%- if part.type in ('image', 'image_url') -%}
                {%- if sighted -%}
                    {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
                {%- endif -%}
            {%- elif part.type == 'text' -%}
                {{- part.text -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
    {%- if message.role == 'tool' -%}
        {%- if loop.first or loop.previtem.role != 'tool' -%}
            {{- '<|im_start|>user' -}}
        {%- endif -%}
        {{- '\\n<tool_response>\\n' + written(message.content, true) + '\\n</tool_response>' -}}
        {%- if loop.last or loop.nextitem.role != 'tool' -%}
            {{- '<|im_end|>\\n' -}}
        {%- endif -%}
    {%- else -%}
        {{- '<|im_start|>' + message.role + '\\n' -}}
        {{- written(message.content, message.role == 'user') + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
"""Our own template for checkpoints made here; it renders what Qwen3-VL's renders for text, images and tool results."""


class Spelling:
    """What a checkpoint's own chat template writes, piece by piece: the first prompt, then what each turn adds.

    `render(messages, reply)` is the template; `reply` opens the assistant's next turn.
    """

    def __init__(self, render: Callable[[list[Message], bool], str], end: str) -> None:
        self._render, self.end = render, end
        asked = [user("?")]
        self._reply = render(asked, True)
        self.thinks = self._reply.endswith(THOUGHT)
        """Whether the template opens each reply with a thought, as those of Thinking checkpoints do."""
        before = render([*asked, spoken(REPLY)], False).partition(REPLY)[0]
        # some templates write a space before a reply that they did not write before they asked for it
        self._gap = before.removeprefix(self._reply) if before.startswith(self._reply) else ""

    def opening(self, system: str, text: str, images: int) -> str:
        """The first prompt: a system message unless it is empty, then a user turn with its images before its text."""
        head = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []
        return self._render([*head, user(text, images)], True)

    def following(self, text: str, images: int, *, closed: bool) -> str:
        """The user turn after a reply; `closed` says whether the reply was sampled up to its end."""
        turn = self._render([user("?"), spoken(REPLY), user(text, images)], True).partition(REPLY)[2]
        return turn.removeprefix(self.end) if closed else turn

    def reply(self, text: str) -> str:
        """A reply written by another: for a checkpoint that thinks, one that had nothing to think about."""
        return f"\n{THOUGHT_END}\n\n{text}" if self.thinks else self._gap + text

    def conversation(self, system: str, turns: Sequence[tuple[str, int]], replies: Sequence[str]) -> str:
        """The whole of it as the template writes it, up to the next reply; `turns` are texts and numbers of images."""
        messages = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []
        for (text, images), said in zip_longest(turns, replies):
            messages += [user(text, images)] if said is None else [user(text, images), spoken(said)]
        return self._render(messages, True)

    def check(self) -> None:
        """Refuse a template that writes a conversation otherwise than by appending turns to it."""
        turns, replies = [("One.", 2), ("Two.", 0), ("Three.", 1)], ["Left.", "Right."]
        for system in ("", "Be brief."):
            told = self.opening(system, *turns[0])
            for said, turn in zip(replies, turns[1:]):
                # a template that thinks leaves thoughts of the past out
                past = told.removesuffix(THOUGHT) if self.thinks else told
                told = past + ("" if self.thinks else self._gap) + said + self.following(*turn, closed=False)
            whole = self.conversation(system, turns, replies)
            if whole != told:
                at = next((i for i, (a, b) in enumerate(zip(whole, told)) if a != b), min(len(whole), len(told)))
                raise TokenMismatch(
                    f"the chat template rewrites earlier turns: it says {whole[at : at + 30]!r} where "
                    f"{told[at : at + 30]!r} was sampled from: give a template that only appends"
                )
        if not self.following("?", 0, closed=False).startswith(self.end):
            raise TokenMismatch(f"the chat template does not end a reply with {self.end}: add it after each reply")


def user(text: str, images: int = 0) -> Message:
    """A user's message: its images, then its text."""
    return {"role": "user", "content": [{"type": "image"}] * images + [{"type": "text", "text": text}]}


def spoken(text: str) -> Message:
    """An assistant's message."""
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def write_images(text: str, placeholder: str, images: Sequence[str]) -> str:
    """The text with each image's `placeholder` spelt out by `images`."""
    parts = text.split(placeholder)
    if len(parts) != len(images) + 1:
        raise TokenMismatch(f"{len(parts) - 1} image placeholders for {len(images)} images: one {placeholder} an image")
    return "".join(chain.from_iterable(zip_longest(parts, images, fillvalue="")))


def expand_images(
    ids: Sequence[int] | NDArray[np.int64], image_pad_id: int, counts: Sequence[int]
) -> NDArray[np.int64]:
    """The ids (n,) with the i-th `<|image_pad|>` repeated `counts[i]` times, once a vision token of its image."""
    ids = np.asarray(ids, dtype=np.int64)
    pads = ids == image_pad_id
    if pads.sum() != len(counts):
        raise TokenMismatch(f"{pads.sum()} image placeholders for {len(counts)} images: one <|image_pad|> an image")
    repeats = np.ones(len(ids), dtype=np.int64)
    repeats[pads] = counts
    return np.repeat(ids, repeats)
