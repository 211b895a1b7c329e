"""From pairs of segments to labels: who answers, what is written down, and what is kept to learn from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from lookact.data.preferences import PreferenceStore
from lookact.data.replay import Feature, Replay
from lookact.errors import DataError
from lookact.judges.teachers import Teacher
from lookact.protocols import Judge
from lookact.recipes.pref_sac.config import LABELS, Feedback
from lookact.recipes.pref_sac.tables import Table
from lookact.rollout.query_selection import features_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """Pairs of segments as a judge is given them."""

    frames: NDArray[np.uint8] | None
    """(n, 2, h, w, 3) the last of each segment."""
    scores: NDArray[np.float64]
    """(n, 2, t) true rewards: for simulated teachers, and for the log."""


Answer = Callable[[Question, int], list[int]]
"""Verdicts (n,) on a question in a session of this number."""


def by_judge(judge: Judge, goal: str) -> Answer:
    """A judge that looks at pictures."""

    def answer(question: Question, session: int) -> list[int]:
        assert question.frames is not None
        return [told.verdict for told in judge.compare([(one, two) for one, two in question.frames], goal)]

    return answer


def by_teacher(teacher: Teacher, *, seed: int) -> Answer:
    """A simulated teacher that knows the true rewards."""

    def answer(question: Question, session: int) -> list[int]:
        # what is poor or alike is so by the span of rewards, wherever their zero lies
        scores = question.scores - question.scores.min()
        margin = float(scores.sum(axis=2).mean())
        verdicts, _ = teacher.prefer(scores[:, 0], scores[:, 1], seed=seed + session, margin=margin)
        return [int(verdict) for verdict in verdicts]

    return answer


class Labeller:
    """Asks about pairs, writes every answer to the log, and keeps those that say something."""

    def __init__(self, answer: Answer, store: PreferenceStore, log: Table, kind: Feature) -> None:
        self.answer, self.store, self.log, self.kind = answer, store, log, kind

    def ask(self, replay: Replay, pairs: NDArray[np.int64], *, session: int) -> dict[str, float]:
        """Put pairs of slots (n, 2, t) to the judge; tells how often it was right of those it decided."""
        question = question_of(replay, pairs)
        verdicts = np.array(self.answer(question, session))
        scores = question.scores.sum(axis=2)
        now = datetime.now().isoformat(timespec="seconds")
        self.log.extend([(*both, verdict, now, session) for both, verdict in zip(scores.tolist(), verdicts.tolist())])
        features = features_of(replay, pairs, self.kind)
        self.store.add(features[:, 0], features[:, 1], verdicts)
        decided = (verdicts >= 0) & (scores[:, 0] != scores[:, 1])
        right = (verdicts == (scores[:, 1] > scores[:, 0]))[decided]
        metrics = {f"judge/{name}": float(count) for name, count in self.store.counts.items()}
        return metrics | ({"judge/accuracy": float(right.mean())} if len(right) else {})


def question_of(replay: Replay, pairs: NDArray[np.int64]) -> Question:
    """What the replay holds of pairs of slots (n, 2, t)."""
    scores = replay.slots(pairs.reshape(-1)).scores.reshape(pairs.shape).astype(np.float64)
    frames = replay.slots(pairs[..., -1].reshape(-1)).frames
    shaped = None if frames is None else frames.reshape(*pairs.shape[:2], *frames.shape[1:])
    return Question(shaped, scores)


def session_size(feedback: Feedback, *, asked: int, done: float) -> int:
    """How many pairs the next session asks about, after `asked` of them and the share `done` of the run."""
    weight = {"uniform": 1.0, "decaying": 2.0 * (1.0 - done), "growing": 2.0 * done}[feedback.schedule]
    return max(0, min(max(1, round(weight * feedback.session)), feedback.total - asked))


def save_labels(store: PreferenceStore, folder: Path) -> None:
    """Write what was learned from, for later runs to begin with."""
    kept = {"first": store.first, "second": store.second, "labels": store.labels}
    save_file({name: tensor.contiguous().clone() for name, tensor in kept.items()}, folder / LABELS)


def load_labels(store: PreferenceStore, path: Path) -> int:
    """Put the labels of an earlier run into the store; returns how many."""
    file = path / LABELS if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"no labels at {path}: give the folder of a run that asked, or its {LABELS}")
    held = load_file(file)
    if held["first"].shape[1:] != store.first.shape[1:]:
        raise DataError(
            f"{file} compares {tuple(held['first'].shape[1:])}, this run {tuple(store.first.shape[1:])}: "
            "it is of another task, reward input or segment length"
        )
    added = store.add(held["first"].numpy(), held["second"].numpy(), held["labels"].numpy())
    logger.info("%d labels were read from %s", added, file)
    return added
