"""The spatial-VQA expert: looks around until it has seen what the question is about, then answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from lookact.envs.rooms.experts.occupancy_map import OccupancyMap, explore
from lookact.envs.rooms.experts.sentences import counted, enough_seen, guessed, located, room_ahead, still_looking
from lookact.envs.rooms.motion import Limits, Move, bearing_to
from lookact.envs.rooms.questions.coverage import named_boxes, visible_boxes
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.scene import Array, label_text
from lookact.envs.rooms.simulator import View
from lookact.envs.rooms.vsi import Question
from lookact.text.actions import ANSWER_KEY

GUESSES = {"object_counting": "2", "object_abs_distance": "2.0", "object_size_estimation": "100"}
"""Answers of a middling size, for numbers that it saw too little to know."""
WHOLE_ROOM = ("object_counting", "room_size_estimation")


class VQAExpert:
    """Knows the labels of what it sees, and measures without error what it has seen; the rest it must guess."""

    def __init__(self, question: Question, labels: tuple[str, ...], *, camera: Camera, limits: Limits) -> None:
        """`labels` are those of `Scene.boxes`, by the index in `View.instance`."""
        self.question, self.camera, self.limits = question, camera, limits
        self.labels = tuple(label_text(label) for label in labels)
        self.wanted = set(named_boxes(question, labels))
        self.seen: set[int] = set()
        self.map: OccupancyMap | None = None

    def act(self, view: View, info: Mapping[str, Any]) -> str:
        """The reply to this view; of `info` it heeds the turn, and whether the last walk was stopped."""
        seen = self.map = self.map or OccupancyMap(view.pose, self.camera)
        points = seen.add(view)
        if info["collided"]:
            seen.mark_blocked(view.pose)
        new = sorted(visible_boxes(view) & self.wanted - self.seen)
        self.seen.update(new)
        return " ".join([*self._report(view, points, new), *self._decide(seen, view, info)])

    def _report(self, view: View, points: Array, new: list[int]) -> list[str]:
        """What this view adds, in sentences."""
        if self.question.question_type == "object_counting":
            return [counted(len(new))]
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
        rotation = seen.unexplored_rotation(view.pose)
        missing = sorted({self.labels[index] for index in self.wanted} - {self.labels[index] for index in self.seen})
        if self._ready(missing, rotation):
            return [enough_seen(), self._answer(self._known())]
        if info["turn"] + 1 >= info["max_turns"]:
            return [guessed(), self._answer(self._guess())]
        move = explore(seen, view.pose, self.limits) if rotation is None else Move(rotation, 0.0)
        return [still_looking(missing[0] if missing else None), move.json()]

    def _ready(self, missing: list[str], rotation: int | None) -> bool:
        if self.question.question_type in WHOLE_ROOM:
            return rotation is None
        return not missing

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
