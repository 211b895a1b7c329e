"""Qwen3-VL's chat format, written piece by piece: sampled ids stay as they are, and only new user turns are encoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lookact.errors import TokenMismatch

SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
    "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
"""Qwen's control tokens, in the order of their ids."""

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
REPLY = "<|im_start|>assistant\n"

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


def opening(system: str, text: str, images: int) -> str:
    """The first prompt: a system message unless it is empty, then a user turn with its images before its text."""
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return head + _user_turn(text, images)


def following(text: str, images: int, *, closed: bool) -> str:
    """The user turn after a reply; `closed` says whether the reply was sampled up to its `<|im_end|>`."""
    return ("\n" if closed else "<|im_end|>\n") + _user_turn(text, images)


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


def _user_turn(text: str, images: int) -> str:
    return f"<|im_start|>user\n{IMAGE * images}{text}<|im_end|>\n{REPLY}"
