"""What passes between the HTTP side and the model: prompts in, replies out, as they are finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lookact.types import Image


@dataclass(frozen=True)
class Message:
    """One message of a conversation: texts and images in their order."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[str | Image, ...]


@dataclass(frozen=True)
class Prompt:
    """A conversation to answer. At temperature 0 the reply is greedy and depends on nothing else."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 0.9
    seed: int = 0
    """Of the draws above temperature 0."""


@dataclass(frozen=True)
class Reply:
    """What the model said, or why it could not be asked."""

    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: Literal["stop", "length"] = "stop"
    error: str = ""
    """The fault of the prompt, in one line; empty where the model answered."""


Generate = Callable[[Sequence[Prompt], Callable[[int], bool]], Iterator[tuple[int, Reply]]]
"""Answers a batch: yields the index and reply of each prompt as soon as it is finished.

The second argument tells of a prompt whether nobody waits for it any more; it may then go unanswered.
"""
