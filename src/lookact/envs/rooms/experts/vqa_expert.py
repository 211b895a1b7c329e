"""The spatial-VQA expert: looks around until it has seen what the question is about, then answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lookact.envs.rooms.experts.occupancy_map import OccupancyMap, explore
from lookact.envs.rooms.experts.sentences import (
    apart,
    concluded,
    counted,
    enough_seen,
    guessed,
    located,
    room_ahead,
    still_looking,
)
from lookact.envs.rooms.motion import Limits, Move, bearing_to
from lookact.envs.rooms.questions import named_labels
from lookact.envs.rooms.questions.coverage import named_boxes, visible_boxes
from lookact.envs.rooms.questions.facts import box_gaps
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.scene import Array, Box, label_text
from lookact.envs.rooms.simulator import View
from lookact.envs.rooms.space import ROUNDING
from lookact.envs.rooms.vsi import Question
from lookact.text.actions import ANSWER_KEY
from lookact.text.answers import DIRECTION_TYPES

GUESSES = {"object_counting": "2", "object_abs_distance": "2.0", "object_size_estimation": "100"}
"""Answers of a middling size, for numbers that it saw too little to know."""
WHOLE_ROOM = ("object_counting", "room_size_estimation")


class VQAExpert:
    """Knows the labels of what it sees, and measures without error what it has seen; the rest it must guess."""

    def __init__(self, question: Question, boxes: tuple[Box, ...], *, camera: Camera, limits: Limits) -> None:
        """`boxes` are those of the scene, by the index in `View.instance`."""
        self.question, self.boxes, self.camera, self.limits = question, boxes, camera, limits
        self.labels = tuple(label_text(box.label) for box in boxes)
        self.wanted = set(named_boxes(question, tuple(box.label for box in boxes)))
        self.seen: set[int] = set()
        self.map: OccupancyMap | None = None

    def act(self, view: View, info: Mapping[str, Any]) -> str:
        """The reply to this view; of `info` it heeds the turn, and whether the last walk was stopped."""
        seen = self.map = self.map or OccupancyMap(view.pose, self.camera)
        points = seen.add(view)
        if info["collided"]:
            seen.mark_blocked(view.pose)
        new = sorted(index for index in visible_boxes(view) & self.wanted - self.seen if self._in_front(view, index))
        self.seen.update(new)
        return " ".join([*self._report(view, points, new), *self._decide(seen, view, info)])

    def _in_front(self, view: View, index: int) -> bool:
        """Whether a thing's middle is within the view: what an edge cuts is left to the view that holds more of it."""
        half = math.degrees(math.atan(self.camera.width / 2 / self.camera.fx))
        return abs(bearing_to(view.pose, self.boxes[index].centroid[None, :2])) <= half + ROUNDING

    def _report(self, view: View, points: Array, new: list[int]) -> list[str]:
        """What this view adds, in sentences."""
        if self.question.question_type == "object_counting":
            return [counted(len(new), len(self.seen))]
        if not self.wanted:
            middle = view.depth.shape[1] // 2
            return [room_ahead(float(np.max(view.depth[:, middle - 1 : middle + 1])))]
        return [self._locate(view, points, index) for index in new]

    def _locate(self, view: View, points: Array, index: int) -> str:
        shown = points[view.instance == index][:, :2]
        away = shown - (view.pose.x, view.pose.y)
        return located(self.labels[index], bearing_to(view.pose, shown), float(np.hypot(*away.T).min()))

    def _decide(self, seen: OccupancyMap, view: View, info: Mapping[str, Any]) -> list[str]:
        """Why it moves or answers, and the move or answer."""
        rotation = seen.unviewed_rotation(view.pose)
        missing = sorted({self.labels[index] for index in self.wanted} - {self.labels[index] for index in self.seen})
        if self.question.question_type in DIRECTION_TYPES:
            # it may stand by the first thing and face the second: what counts is where the third one is
            missing = [label for label in missing if label == named_labels(self.question)[2]]
        if self._ready(missing, rotation):
            return [enough_seen(), *self._reasons(), self._answer(self._known())]
        if info["turn"] + 1 >= info["max_turns"]:
            return [guessed(), self._answer(self._guess())]
        move = explore(seen, view.pose, self.limits) if rotation is None else Move(rotation, 0.0)
        return [still_looking(missing[0] if missing else None), move.json()]

    def _ready(self, missing: list[str], rotation: int | None) -> bool:
        if self.question.question_type in WHOLE_ROOM:
            return rotation is None
        return not missing

    def _reasons(self) -> list[str]:
        """Of a multiple choice, what the answer rests on."""
        question = self.question
        if question.options is None:
            return []
        texts = {option[0]: option[3:] for option in question.options}
        gaps = []
        if question.question_type == "object_rel_distance":
            gaps = [apart(text, self._gap(text)) for text in texts.values()]
        return [*gaps, concluded(texts[question.ground_truth])]

    def _gap(self, label: str) -> float:
        """Metres from the nearest thing of that name to the one that the question asks about."""
        target = self.boxes[self.labels.index(named_labels(self.question)[-1])]
        others = [box for box, name in zip(self.boxes, self.labels) if name == label]
        return float(box_gaps([target, *others])[0, 1:].min())

    def _known(self) -> str:
        if self.question.question_type == "object_counting":
            return self._count()
        return self.question.ground_truth

    def _count(self) -> str:
        return str(max(1, len(self.seen)))

    def _guess(self) -> str:
        if self.question.question_type == "object_counting":
            return self._count()
        if self.question.options is not None:
            return self.question.options[0][0]
        return GUESSES.get(self.question.question_type, "20")

    def _answer(self, answer: str) -> str:
        return json.dumps({ANSWER_KEY: answer})
