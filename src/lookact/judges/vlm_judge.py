"""A VLM that compares two images against a goal (RL-VLM-F, arXiv:2402.03681): describe first, then decide.

Variants: `two_step` asks for a description of both images, then for 0, 1 or -1 by the description alone; `single`
asks for the number at once; `logprob` asks the same and takes the likeliest of 0, 1 and - by its log-probability;
`rating` asks for 0 to 10 for each image and compares; `yes` asks of each whether the goal is reached, and compares the
log-probabilities of "yes". Every request goes through the cache, so that what was once answered is never asked again,
also where a run was killed between two steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lookact.errors import ParseError
from lookact.judges import prompts
from lookact.judges.client import Content, JudgeClient
from lookact.text.verdicts import parse_verdict, strip_think
from lookact.types import Image, Preference

Variant = Literal["two_step", "single", "logprob", "rating", "yes"]
Pair = tuple[Image, Image]
LOGPROBS = 0
"""In place of a number of tokens: the log-probabilities of the first."""
COUNTS = ("pairs", "requests", "cached", "identical", "no_preference", "unparsable")
QUESTIONS = {
    "two_step": (prompts.DESCRIBE, prompts.VERDICT),
    "single": (prompts.SINGLE,),
    "logprob": (prompts.SINGLE,),
    "rating": (prompts.RATING, prompts.RATING),
    "yes": (prompts.YES, prompts.YES),
}
"""What each variant asks about a pair, in order."""
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
        ask = {
            "two_step": self._two_step,
            "single": self._single,
            "logprob": self._logprob,
            "rating": self._rating,
            "yes": self._yes,
        }[self.variant]
        replies = ask(pair, goal)
        try:
            verdict = READ[self.variant](replies)
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

    def _logprob(self, pair: Pair, goal: str) -> list[str]:
        return [self._ask(both(pair, prompts.SINGLE.format(goal=goal)), LOGPROBS)]

    def _yes(self, pair: Pair, goal: str) -> list[str]:
        question = prompts.YES.format(goal=goal)
        return [self._ask([image, question], LOGPROBS) for image in pair]

    def _ask(self, content: Content, max_tokens: int) -> str:
        """The reply, or the log-probabilities of its first token as JSON where `max_tokens` is LOGPROBS."""
        asked = False

        def ask() -> str:
            nonlocal asked
            if max_tokens == LOGPROBS:
                reply = json.dumps(self.client.first_token(content))
            else:
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
    """Two images with their numbers, and the question after them."""
    return [prompts.DESCRIBE_OPENING, pair[0], prompts.DESCRIBE_BETWEEN, pair[1], question]


def by_number(replies: Sequence[str]) -> int:
    """0, 1 or -1 as the last reply says it."""
    return parse_verdict(replies[-1])


def by_logprob(replies: Sequence[str]) -> int:
    """The likeliest of 0, 1 and -1 (or -, where a tokenizer cuts it in two)."""
    likely: dict[str, float] = json.loads(replies[-1])
    if "0" not in likely and "1" not in likely:
        raise ParseError(f"neither 0 nor 1 is among the likeliest tokens {sorted(likely)}: the judge must answer one")
    scores = [likely.get(token, -np.inf) for token in ("0", "1", "-1", "-")]
    return (0, 1, -1, -1)[int(np.argmax(scores))]


def by_yes(replies: Sequence[str]) -> int:
    """0, 1 or -1 by which of two images is likelier to be told a yes."""
    likely = [json.loads(reply) for reply in replies]
    if not all("yes" in each for each in likely):
        raise ParseError("yes is not among the likeliest tokens: the judge must answer yes or no")
    return by_score(*(each["yes"] for each in likely))


def by_rating(replies: Sequence[str]) -> int:
    """0, 1 or -1 by which of two ratings is higher."""
    return by_score(*map(parse_rating, replies))


def by_score(first: float, second: float) -> int:
    """0 or 1, the higher of two scores; -1 where they are equal."""
    return -1 if first == second else int(second > first)


READ: dict[str, Callable[[Sequence[str]], int]] = {
    "two_step": by_number,
    "single": by_number,
    "logprob": by_logprob,
    "rating": by_rating,
    "yes": by_yes,
}
"""The verdict of the replies, by variant."""


def parse_rating(text: str) -> float:
    """The first number from 0 to 10 in a reply, its thinking aside."""
    found = RATING.search(strip_think(text))
    if found is None:
        raise ParseError(f"no rating in {text[-60:]!r}: the judge must answer a number from 0 to 10")
    return float(found.group(1))


def request_key(model: str, content: Content, max_tokens: int) -> str:
    """A name for a request by all that decides its reply: the model, the texts, the images and the limit."""
    digest = hashlib.blake2b(digest_size=20)
    for name in (model, str(max_tokens)):
        digest.update(f"{len(name.encode())}:".encode() + name.encode())
    for part in content:
        if isinstance(part, str):
            digest.update(f"text {len(part.encode())}:".encode() + part.encode())
        else:
            digest.update(f"image {part.shape} {part.dtype}:".encode() + np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


class ReplyCache:
    """A folder of replies, found by what was asked: a rerun costs no request. Safe across threads and processes.

    An entry is one file, written under another name and renamed; one that is torn or of another key is ignored.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._lock = threading.Lock()
        self._asking: dict[str, Future[str]] = {}

    def recall(self, key: str, ask: Callable[[], str]) -> str:
        """The reply kept under `key`, else that of `ask`, kept; a key asked by two threads at once is asked once."""
        kept = self.load(key)
        if kept is not None:
            return kept
        with self._lock:
            other = self._asking.get(key)
            mine = self._asking.setdefault(key, Future())
        if other is not None:
            return other.result()
        try:
            # another thread may have finished between the look and the claim
            kept = self.load(key)
            reply = ask() if kept is None else kept
            if kept is None:
                self.store(key, reply)
            mine.set_result(reply)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._asking[key]
        return reply

    def load(self, key: str) -> str | None:
        """The reply under `key`, or None where there is none that can be trusted."""
        try:
            entry = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key or not isinstance(entry.get("reply"), str):
            return None
        return str(entry["reply"])

    def store(self, key: str, reply: str) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
        temporary.write_text(json.dumps({"key": key, "reply": reply}), encoding="utf-8")
        temporary.replace(path)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"
