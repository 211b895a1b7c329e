"""Question coverage: the share of what a question is about that has come into view, a shaping potential."""

from __future__ import annotations

import math
import re

import numpy as np

from lookact.envs.rooms.motion import Pose
from lookact.envs.rooms.questions.facts import BARELY_VISIBLE
from lookact.envs.rooms.scene import label_text
from lookact.envs.rooms.simulator import View
from lookact.envs.rooms.space import ROUNDING
from lookact.envs.rooms.vsi import Question

DIRECTIONS = 4
"""A room as a whole has been seen when each quarter of the circle has been looked into."""


def named_boxes(question: Question, labels: tuple[str, ...]) -> tuple[int, ...]:
    """The places among `labels`, those of a scene's boxes, of the things that a question names."""
    words = " ".join([question.question, *(question.options or ())])
    named = {label for label in set(labels) if re.search(rf"\b{re.escape(label_text(label))}\b", words)}
    return tuple(index for index, label in enumerate(labels) if label in named)


def visible_boxes(view: View) -> set[int]:
    """The boxes that take up enough of a view to count as seen."""
    objects, pixels = np.unique(view.instance, return_counts=True)
    return {int(index) for index in objects[pixels >= BARELY_VISIBLE * view.instance.size] if index >= 0}


class Coverage:
    """What has been seen so far of the things a question names, or of the room where it names none."""

    def __init__(self, question: Question, labels: tuple[str, ...]) -> None:
        """`labels` are those of `Scene.boxes`, by the index in `View.instance`."""
        self.wanted = set(named_boxes(question, labels))
        self.found: set[int] = set()
        self.quarters: set[int] = set()

    def add(self, view: View) -> None:
        self.found |= visible_boxes(view) & self.wanted
        self.quarters.add(_quarter(view.pose))

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return len(self.found) / len(self.wanted) if self.wanted else len(self.quarters) / DIRECTIONS


def _quarter(pose: Pose) -> int:
    return math.floor((pose.yaw + math.pi + ROUNDING) / (2 * math.pi) * DIRECTIONS) % DIRECTIONS
