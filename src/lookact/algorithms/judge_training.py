"""Trains a tiny VLM to judge: image regression, then SFT on the judge's own questions; and measures its accuracy.

The simulator knows which of two images is closer to the goal. Only the judge is trained on it; the agent gets the
judge's labels.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.algorithms.image_regression import regress_images
from lookact.algorithms.reward_learning import label_accuracy
from lookact.algorithms.sft import fit
from lookact.data.packing import Segment
from lookact.judges import prompts
from lookact.judges.client import Content
from lookact.judges.vlm_judge import both
from lookact.models.vlm.loading import load_chat, save_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.protocols import Judge
from lookact.rollout.samplers.chat_engine import control_tokens, written
from lookact.seeding import derive, numpy_rng
from lookact.training.atomic_io import TEMPORARY, place, write_text
from lookact.training.evaluation import wilson_interval
from lookact.types import Image

CLOSER = {0: "The first is closer.", 1: "The second is closer.", -1: "They are equally close."}
KINDS = ("single", "describe", "rating", "verdict")
"""Of questions; a judge that is to be asked for a yes learns `yes` in place of `rating`."""
SHARES = (0.45, 0.3, 0.1, 0.15)
"""Of the question-answer pairs; descriptions are the densest signal, verdicts on a description are learned fastest."""
LEVELS = 10
"""Rating at the goal."""
OUTLIERS = 0.01
"""Quantile of scores at either end that is clipped."""
PROMPT_REPEATS = 200
"""How often each question is in the tokenizer's corpus, so that its tokens are long."""
QUERY_COLUMNS = ("ground_truth_score_1", "ground_truth_score_2", "vlm_predicted_label", "timestamp", "train_iter")
"""Of vlm_query_log.csv."""
REPORT, HELD_OUT, LOG = "report.json", "held_out.csv", "sft.jsonl"
BINS = (0.0, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Of the difference in progress between two images, from 0 to 1."""
CLEAR = 0.2
"""From this difference on a pair is clearly different."""
Report = dict[str, Any]


@dataclass(frozen=True)
class LabelledImages:
    """Images of a task with what the simulator knows of them."""

    images: NDArray[np.uint8]
    """(n, h, w, 3)"""
    scores: NDArray[np.float64]
    """(n,) progress towards the goal."""
    states: NDArray[np.float32]
    """(n, s)"""


@dataclass(frozen=True)
class QAPair:
    """One question as a client asks it, and its answer."""

    content: Content
    answer: str


def train_judge(
    folder: Path,
    data: Mapping[str, LabelledImages],
    *,
    regression_epochs: int,
    qa_pairs: int,
    epochs: int,
    batch_size: int,
    lr: float,
    margin: float,
    seed: int,
    yes: bool = False,
) -> Path:
    """Writes a judge, trained on images of one or more tasks by their goals, to `folder`, whole or not at all."""
    temporary = folder.with_name(TEMPORARY + folder.name)
    temporary.mkdir(parents=True, exist_ok=True)
    spec = TinySpec(image_size=max(side for part in data.values() for side in part.images.shape[1:3]))
    chat = load_chat(make_tiny(temporary, corpus=make_corpus(*data, yes=yes), spec=spec, seed=derive(seed, "judge")))
    report = step_log(temporary / LOG)
    # image regression: the vision encoder alone
    if regression_epochs:
        targets = np.concatenate(
            [np.column_stack([levels(part.scores, part.scores), part.states]) for part in data.values()]
        )
        images = [image for part in data.values() for image in part.images]
        regress_images(
            chat, images, targets, epochs=regression_epochs, rows=batch_size, lr=2 * lr, seed=seed, report=report
        )
    # SFT on the judge's questions
    count, pairs = qa_pairs // len(data), []
    for goal, part in data.items():
        drawn = seed if len(data) == 1 else derive(seed, "qa pairs", goal)
        pairs += make_qa_pairs(part, goal, count=count, margin=margin, seed=drawn, yes=yes)
    fit(
        chat,
        {number: segment_of(chat, pair) for number, pair in enumerate(pairs)},
        total=len(pairs),
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        token_budget=8192,
        seed=seed,
        report=report,
    )
    place(save_chat(chat, temporary), folder)
    return folder


def measure_judge(judge: Judge, data: LabelledImages, goal: str, *, pairs: int, seed: int, folder: Path) -> Report:
    """The judge on held-out pairs: its labels go to a table, its accuracy by difficulty to a report."""
    level = levels(data.scores, data.scores)
    drawn = draw_image_pairs(level, pairs, numpy_rng(seed, "held-out pairs"))
    preferences = judge.compare([(data.images[i], data.images[j]) for i, j in drawn], goal)
    verdicts = np.array([preference.verdict for preference in preferences])
    first, second = data.scores[drawn[:, 0]], data.scores[drawn[:, 1]]
    with (folder / HELD_OUT).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(QUERY_COLUMNS)
        # no time of day: the same judge gives the same table
        writer.writerows((a, b, verdict, 0, 0) for a, b, verdict in zip(first, second, verdicts))
    gap = np.abs(level[drawn[:, 0]] - level[drawn[:, 1]])
    report = {
        "goal": goal,
        "clear": rates(verdicts, first, second, gap >= CLEAR),
        "by_difficulty": [
            {"from": low, "to": high, **rates(verdicts, first, second, (gap >= low) & (gap < high))}
            for low, high in zip(BINS, (*BINS[1:-1], np.inf))
        ],
        "counts": dict(getattr(judge, "counts", {})),
    }
    write_text(folder / REPORT, json.dumps(report, indent=2, default=float) + "\n")
    return report


def rates(
    verdicts: NDArray[np.int64], first: NDArray[np.float64], second: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> Report:
    """Accuracy of the verdicts (n,) on the chosen pairs, of those that were decided, and how many were not."""
    right, count = label_accuracy(verdicts[chosen], first[chosen], second[chosen])
    asked = int(chosen.sum())
    return {
        "pairs": asked,
        "accuracy": right / count if count else None,
        "ci": list(wilson_interval(right, count)),
        "no_preference_rate": float((verdicts == -1)[chosen].mean()) if asked else None,
    }


def clear_accuracy(report: Report) -> str:
    """The report in one line, for the log."""
    accuracy, pairs = report["clear"]["accuracy"], report["clear"]["pairs"]
    return "no clear pairs" if accuracy is None else f"{accuracy:.0%} of {pairs} clearly different pairs right"


def levels(scores: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Progress (n,) from 0 to 1: scores over the span of those in `scale` (m,) without its outliers."""
    low, high = np.quantile(scale, [OUTLIERS, 1 - OUTLIERS])
    return np.asarray(np.clip((scores - low) / max(high - low, 1e-9), 0.0, 1.0))


def verdict_of(first: float, second: float, margin: float) -> int:
    """0 or 1 by the higher level, -1 where they are less than `margin` apart."""
    return -1 if abs(second - first) < margin else int(second > first)


def description_of(first: float, second: float, margin: float) -> str:
    """Both levels as ratings, then which is closer."""
    ratings = f"The first is at {round(LEVELS * first)}, the second at {round(LEVELS * second)}."
    return f"{ratings} {CLOSER[verdict_of(first, second, margin)]}"


def draw_image_pairs(level: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Pairs (count, 2) of images, stratified: each tenth of the levels is equally likely."""
    tenths = np.minimum((LEVELS * level).astype(np.int64), LEVELS - 1)
    weights = 1.0 / np.bincount(tenths, minlength=LEVELS)[tenths]
    return rng.choice(len(level), size=(count, 2), p=weights / weights.sum())


def make_qa_pairs(
    data: LabelledImages, goal: str, *, count: int, margin: float, seed: int, yes: bool = False
) -> list[QAPair]:
    """`count` questions of all kinds on random pairs of images."""
    rng = numpy_rng(seed, "lessons")
    level = levels(data.scores, data.scores)
    kinds = rng.choice([kind.replace("rating", "yes") if yes else kind for kind in KINDS], size=count, p=SHARES)
    pairs = draw_image_pairs(level, count, rng)
    draws = rng.random(count)
    return [make_qa_pair(kind, data, level, pair, draw, goal, margin) for kind, pair, draw in zip(kinds, pairs, draws)]


def make_qa_pair(
    kind: str,
    data: LabelledImages,
    level: NDArray[np.float64],
    pair: NDArray[np.int64],
    draw: float,
    goal: str,
    margin: float,
) -> QAPair:
    """One question of this kind about a pair; whether the goal is reached is answered yes as often as it is near."""
    images = data.images[pair[0]], data.images[pair[1]]
    first, second = float(level[pair[0]]), float(level[pair[1]])
    verdict, description = str(verdict_of(first, second, margin)), description_of(first, second, margin)
    if kind == "single":
        return QAPair(both(images, prompts.SINGLE.format(goal=goal)), verdict)
    if kind == "describe":
        return QAPair(both(images, prompts.DESCRIBE.format(goal=goal)), description)
    if kind == "rating":
        return QAPair([images[0], prompts.RATING.format(goal=goal)], str(round(LEVELS * first)))
    if kind == "yes":
        return QAPair([images[0], prompts.YES.format(goal=goal)], "yes" if draw < first else "no")
    return QAPair([verdict_question(description, goal)], verdict)


def verdict_question(description: str, goal: str) -> str:
    return prompts.VERDICT.replace("{goal}", goal).replace("{description}", description)


def make_corpus(*goals: str, yes: bool = False) -> list[str]:
    """The tiny tokenizer's training text: every question and every answer."""
    asked = (prompts.DESCRIBE, prompts.SINGLE, prompts.YES if yes else prompts.RATING)
    questions = [
        prompts.DESCRIBE_OPENING,
        prompts.DESCRIBE_BETWEEN,
        *(question.format(goal=goal) for goal in goals for question in asked),
    ]
    ratings = [(a / LEVELS, b / LEVELS) for a in range(LEVELS + 1) for b in range(LEVELS + 1)]
    described = [description_of(a, b, margin=0.5 / LEVELS) for a, b in ratings]
    return (
        questions * PROMPT_REPEATS + described + [verdict_question(text, goal) for goal in goals for text in described]
    )


def segment_of(chat: ChatVLM, pair: QAPair) -> Segment:
    """A conversation of one turn, formatted as the server formats a request; every token of the answer counts."""
    images: list[Image] = [part for part in pair.content if not isinstance(part, str)]
    text = chat.tokenizer.apply_chat_template(
        [{"role": "user", "content": written(pair.content, control_tokens(chat.tokenizer))}],
        add_generation_prompt=True,
        tokenize=False,
    )
    prompt = chat.encode_prompt(text, images)
    reply = np.array([*chat.encode_text(pair.answer), chat.end_id], dtype=np.int64)
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


def step_log(path: Path) -> Callable[[dict[str, float], int], None]:
    """Writes the metrics of each gradient step as a line of JSON."""
    lines: list[str] = []

    def log(metrics: dict[str, float], step: int) -> None:
        lines.append(json.dumps({"step": step, **metrics}))
        if step % 10 == 0:
            path.write_text("\n".join(lines) + "\n")

    return log
