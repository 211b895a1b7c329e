"""What the embedded judge is taught: the judge's own questions about pictures whose order the simulator knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.data.segments import Segment
from lookact.judges import prompts
from lookact.judges.client import Content
from lookact.judges.vlm_judge import both
from lookact.models.vlm.policy import ChatVLM
from lookact.rollout.samplers.chat_engine import written
from lookact.seeding import numpy_rng
from lookact.text.chat import expand_images
from lookact.types import Image

CLOSER = {0: "The first is closer.", 1: "The second is closer.", -1: "They are equally close."}
KINDS = ("single", "describe", "rating", "verdict")
SHARES = (0.45, 0.3, 0.1, 0.15)
"""Of the lessons; a description teaches most, and a verdict by the description is learned fastest."""
LEVELS = 10
"""What a rating says at the goal."""
OUTLIERS = 0.01
"""Share of scores at either end that do not stretch the scale."""
WHOLE_PROMPTS = 200
"""How often the tokenizer meets each question, so that its pieces are long."""


@dataclass(frozen=True)
class LabelledImages:
    """Pictures of a task, with what the simulator knows of them."""

    images: NDArray[np.uint8]
    """(n, h, w, 3)"""
    scores: NDArray[np.float64]
    """(n,) how well the goal is reached."""
    states: NDArray[np.float32]
    """(n, s)"""

    def __len__(self) -> int:
        return len(self.scores)

    def part(self, start: int, stop: int) -> LabelledImages:
        return LabelledImages(self.images[start:stop], self.scores[start:stop], self.states[start:stop])


@dataclass(frozen=True)
class Lesson:
    """One question as a client asks it, and the reply that is right."""

    content: Content
    reply: str


def levels(scores: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (n,) from 0 to 1, by the span of those in `scale` (m,) without its outliers."""
    low, high = np.quantile(scale, [OUTLIERS, 1 - OUTLIERS])
    return np.asarray(np.clip((scores - low) / max(high - low, 1e-9), 0.0, 1.0))


def verdict_of(first: float, second: float, margin: float) -> int:
    """0 or 1 by the higher level, -1 where they are less than `margin` apart."""
    return -1 if abs(second - first) < margin else int(second > first)


def description_of(first: float, second: float, margin: float) -> str:
    """Both levels as ratings, then which is closer."""
    ratings = f"The first is at {round(LEVELS * first)}, the second at {round(LEVELS * second)}."
    return f"{ratings} {CLOSER[verdict_of(first, second, margin)]}"


def draw_pairs(level: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Pairs (count, 2) of pictures; every tenth of the levels is drawn alike, however rare it is."""
    tenths = np.minimum((LEVELS * level).astype(np.int64), LEVELS - 1)
    weights = 1.0 / np.bincount(tenths, minlength=LEVELS)[tenths]
    return rng.choice(len(level), size=(count, 2), p=weights / weights.sum())


def make_lessons(gallery: LabelledImages, goal: str, *, count: int, margin: float, seed: int) -> list[Lesson]:
    """`count` lessons of all kinds on random pairs of the gallery."""
    rng = numpy_rng(seed, "lessons")
    level = levels(gallery.scores, gallery.scores)
    kinds = rng.choice(KINDS, size=count, p=SHARES)
    pairs = draw_pairs(level, count, rng)
    return [make_lesson(kind, gallery, level, pair, goal, margin) for kind, pair in zip(kinds, pairs)]


def make_lesson(
    kind: str, gallery: LabelledImages, level: NDArray[np.float64], pair: NDArray[np.int64], goal: str, margin: float
) -> Lesson:
    """One question of this kind about a pair."""
    images = gallery.images[pair[0]], gallery.images[pair[1]]
    first, second = float(level[pair[0]]), float(level[pair[1]])
    verdict, description = str(verdict_of(first, second, margin)), description_of(first, second, margin)
    if kind == "single":
        return Lesson(both(images, prompts.SINGLE.format(goal=goal)), verdict)
    if kind == "describe":
        return Lesson(both(images, prompts.DESCRIBE.format(goal=goal)), description)
    if kind == "rating":
        return Lesson([images[0], prompts.RATING.format(goal=goal)], str(round(LEVELS * first)))
    return Lesson([verdict_question(description, goal)], verdict)


def verdict_question(description: str, goal: str) -> str:
    return prompts.VERDICT.replace("{goal}", goal).replace("{description}", description)


def make_corpus(goal: str) -> list[str]:
    """Texts in which the tiny tokenizer finds its pieces: every question and every reply."""
    questions = [
        prompts.DESCRIBE_OPENING,
        prompts.DESCRIBE_BETWEEN,
        *(question.format(goal=goal) for question in (prompts.DESCRIBE, prompts.SINGLE, prompts.RATING)),
    ]
    ratings = [(a / LEVELS, b / LEVELS) for a in range(LEVELS + 1) for b in range(LEVELS + 1)]
    described = [description_of(a, b, margin=0.5 / LEVELS) for a, b in ratings]
    return questions * WHOLE_PROMPTS + described + [verdict_question(text, goal) for text in described]


def segments_of(chat: ChatVLM, lessons: Sequence[Lesson]) -> dict[int, Segment]:
    """The lessons as training segments, written down as the server writes a request."""
    return {number: segment_of(chat, lesson) for number, lesson in enumerate(lessons)}


def segment_of(chat: ChatVLM, lesson: Lesson) -> Segment:
    """One conversation of one turn; every token of the reply counts."""
    images: list[Image] = [part for part in lesson.content if not isinstance(part, str)]
    text = chat.tokenizer.apply_chat_template(
        [{"role": "user", "content": written(lesson.content)}], add_generation_prompt=True, tokenize=False
    )
    counts = chat.image_token_counts(chat.encode_images(images)[1])
    prompt = expand_images(chat.encode_text(text), chat.image_pad_id, counts)
    reply = np.array([*chat.encode_text(lesson.reply), chat.end_id], dtype=np.int64)
    zeros = np.zeros(len(reply), dtype=np.float32)
    return Segment(
        ids=np.concatenate([prompt, reply]),
        positions=np.arange(len(prompt), len(prompt) + len(reply)),
        mask=np.ones(len(reply), dtype=bool),
        logprobs=zeros,
        turns=np.zeros(len(reply), dtype=np.int64),
        rewards=zeros,
        images=tuple(images),
        episode_return=0.0,
        group=0,
        terminated=True,
        advantages=zeros,
    )
