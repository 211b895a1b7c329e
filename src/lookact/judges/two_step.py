"""A VLM that compares two pictures against a goal (RL-VLM-F, arXiv:2402.03681): describe first, then decide.

Variants: `two_step` asks for a description of both pictures, then for 0, 1 or -1 by the description alone; `single`
asks for the number at once; `rating` asks for 0 to 10 for each picture and compares. Every request goes through the
cache, so that what was once answered is never asked again, also where a run was killed between two steps.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from lookact.errors import ParseError
from lookact.judges import prompts
from lookact.judges.cache import ReplyCache, request_key
from lookact.judges.client import JudgeClient
from lookact.judges.encoding import Content
from lookact.text.verdicts import parse_verdict, strip_think
from lookact.types import Image, Preference

Variant = Literal["two_step", "single", "rating"]
Pair = tuple[Image, Image]
COUNTS = ("pairs", "requests", "cached", "identical", "no_preference", "unparsable")
RATING = re.compile(r"(?<![\w.])(10(?:\.0+)?|\d(?:\.\d+)?)(?!\.?\d|\w)")


class VLMJudge:
    """A `Judge` that asks a VLM server; remembers how often it asked and what came of it."""

    def __init__(self, client: JudgeClient, *, variant: Variant = "two_step", cache: ReplyCache | None = None) -> None:
        self.client, self.variant, self.cache = client, variant, cache
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        """pairs compared; requests answered by the server and replies from the cache; identical pairs, answered -1
        unasked; no_preference and unparsable replies, both -1 but counted apart."""
        self._lock = threading.Lock()

    def compare(self, pairs: Sequence[Pair], goal: str) -> list[Preference]:
        """A verdict for every pair, in order. Raises JudgeError where the server stays away; replies are kept."""
        judged = self.client.map(lambda pair: self._judge(pair, goal), list(pairs))
        # only now: pairs of a call that failed are judged again, and must not count twice
        self._count(*["pairs"] * len(judged), *[outcome for _, outcome in judged if outcome])
        return [preference for preference, _ in judged]

    def state_dict(self) -> dict[str, Any]:
        return dict(self.counts)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = Counter(state)

    def _judge(self, pair: Pair, goal: str) -> tuple[Preference, str]:
        """The preference, and what it counts as besides a pair."""
        first, second = pair
        if np.array_equal(first, second):
            return Preference(first, second, -1, "identical"), "identical"
        replies = {"two_step": self._two_step, "single": self._single, "rating": self._rating}[self.variant](pair, goal)
        try:
            verdict = by_rating(*replies) if self.variant == "rating" else parse_verdict(replies[-1])
            outcome = "no_preference" if verdict == -1 else ""
        except ParseError:
            verdict, outcome = -1, "unparsable"
        return Preference(first, second, verdict, "\n---\n".join(replies)), outcome

    def _two_step(self, pair: Pair, goal: str) -> list[str]:
        question = prompts.DESCRIBE.format(goal=goal)
        description = self._ask(both(pair, question), prompts.DESCRIPTION_TOKENS)
        # a description may hold braces: it is put in last, by replace and not by format
        verdict = prompts.VERDICT.replace("{goal}", goal).replace("{description}", strip_think(description))
        return [description, self._ask([verdict], prompts.VERDICT_TOKENS)]

    def _single(self, pair: Pair, goal: str) -> list[str]:
        return [self._ask(both(pair, prompts.SINGLE.format(goal=goal)), prompts.VERDICT_TOKENS)]

    def _rating(self, pair: Pair, goal: str) -> list[str]:
        question = prompts.RATING.format(goal=goal)
        return [self._ask([image, question], prompts.VERDICT_TOKENS) for image in pair]

    def _ask(self, content: Content, max_tokens: int) -> str:
        asked = False

        def ask() -> str:
            nonlocal asked
            reply = self.client.ask(content, max_tokens=max_tokens)
            asked = True
            return reply

        if self.cache is None:
            reply = ask()
        else:
            reply = self.cache.recall(request_key(self.client.model, content, max_tokens), ask)
        self._count("requests" if asked else "cached")
        return reply

    def _count(self, *names: str) -> None:
        with self._lock:
            self.counts.update(names)


def both(pair: Pair, question: str) -> list[str | Image]:
    """Two pictures with their numbers, and the question after them."""
    return [prompts.DESCRIBE_OPENING, pair[0], prompts.DESCRIBE_BETWEEN, pair[1], question]


def by_rating(first: str, second: str) -> int:
    """0, 1 or -1 by which of two ratings is higher."""
    ratings = [parse_rating(first), parse_rating(second)]
    return -1 if ratings[0] == ratings[1] else int(ratings[1] > ratings[0])


def parse_rating(text: str) -> float:
    """The first number from 0 to 10 in a reply, its thinking aside."""
    found = RATING.search(strip_think(text))
    if found is None:
        raise ParseError(f"no rating in {text[-60:]!r}: the judge must answer a number from 0 to 10")
    return float(found.group(1))
