"""VSI-Bench's route_planning rows as walks: the landmarks are stops to be reached in turn, the right option the turns.

Success is the end reached, all stops passed on the way in their order, and at each blank the turn that the right option
names. A turn is measured between the ways from stop to stop as they were walked, and takes the nearest name of left,
right, back and straight on. Landmarks without a box of their own (a door, a blue desk) can't be walked to: such rows
are refused with the name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lookact.envs.rooms.goals import goal_field
from lookact.envs.rooms.motion import Pose
from lookact.envs.rooms.questions.facts import Facts, wrap_degrees
from lookact.envs.rooms.questions.route import TURNS, bearing, standing_places
from lookact.envs.rooms.scene import canonical_label
from lookact.envs.rooms.simulator import CAMERA_HEIGHT, Simulator
from lookact.envs.rooms.vsi import Question
from lookact.errors import EnvError

BEGIN = re.compile(r"beginning at (?:the )?(.+?),?(?: and)? facing (?:the )?(.+?)\. ?You want to navigate", re.I)
STEP = re.compile(
    r"\d+\. *(\[please fill in\]|Go forward until (?:the )?.+?)(?=\.? *\d+\. |\.? *You have reached|\.?$)", re.I
)
UNTIL = re.compile(r"Go forward until (?:the )?", re.I)
NAMED_TURNS = (*TURNS, "Straight On")
MIDDLES = np.array([90.0, -90.0, 180.0, 0.0])
SHORTEST_LEG = 0.3
"""Metres; a shorter way has no clear direction, so the turns at its ends are not judged."""


@dataclass(frozen=True)
class Route:
    """What a row says: where to start, what to face, where to stop, and the turn before each stop, if it is asked."""

    start: str
    facing: str
    stops: tuple[str, ...]
    turns: tuple[int | None, ...]
    """By stop, as indices into TURNS; None where the way goes straight on."""


def as_question(row: Question | Mapping[str, Any]) -> Question:
    """A row as it is, or as a dict of VSI-Bench's columns."""
    if isinstance(row, Question):
        return row
    try:
        columns = {name: str(row[name]) for name in ("scene_name", "question", "ground_truth")}
        return Question(int(row.get("id", 0)), str(row.get("dataset", "")), question_type="route_planning",
                        options=tuple(row["options"]), **columns)  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EnvError(f"option route is no route_planning row ({type(error).__name__}: {error})") from None


def read_route(question: Question) -> Route:
    """The landmarks of a row's text and the turns of its right option."""
    begin = BEGIN.search(question.question)
    steps = STEP.findall(question.question[begin.end() :]) if begin else []
    right = [option for option in question.options or () if option.startswith(f"{question.ground_truth}.")]
    if begin is None or not steps or len(right) != 1:
        raise EnvError(f"row {question.id} is no route: it needs a start, numbered steps and the option of its answer")
    wanted = [TURNS.index(word.strip().title()) for word in right[0][2:].split(",") if word.strip().title() in TURNS]
    blanks = iter(wanted)
    stops: list[str] = []
    turns: list[int | None] = []
    pending: int | None = None
    for step in steps:
        if step.startswith("["):
            pending = next(blanks, None)
            continue
        stops.append(UNTIL.sub("", step).strip(" ."))
        turns.append(pending)
        pending = None
    if not stops or len(wanted) != sum(step.startswith("[") for step in steps):
        raise EnvError(f"row {question.id} is no route: {len(wanted)} turns for its blanks, {len(stops)} stops")
    return Route(begin.group(1), begin.group(2), tuple(stops), tuple(turns))


def route_start(sim: Simulator, route: Route) -> Pose:
    """Beside the first landmark, looking at what is faced."""
    return beside(sim, route.start, facing=route.facing)


def beside(sim: Simulator, name: str, *, facing: str) -> Pose:
    """Where one stands beside a thing and looks at another."""
    facts = Facts(sim.scene)
    place = standing_places(facts)[facts.unique.index(landmark(sim, name))]
    if np.isnan(place).any():
        raise EnvError(f"{sim.scene.id}: nobody can stand beside the {name}")
    target = sim.scene.boxes[landmark(sim, facing)].centroid[:2]
    yaw = math.radians(float(bearing(target - place)))
    return Pose(float(place[0]), float(place[1]), yaw, CAMERA_HEIGHT)


def landmark(sim: Simulator, name: str) -> int:
    """The box that a landmark's name stands for."""
    found = [index for index, box in enumerate(sim.scene.boxes) if box.label == canonical_label(name)]
    if len(found) != 1:
        raise EnvError(
            f"{sim.scene.id}: '{name}' names {len(found) or 'no'} boxes, a route needs one for each landmark"
        )
    return found[0]


class RouteWalk:
    """One route being walked; like a NavigationTask, but that it minds the stops passed so far."""

    def __init__(self, sim: Simulator, question: Question, success_distance: float) -> None:
        self.sim, self.route = sim, read_route(question)
        self.question = question.question
        self.question_id = f"{question.scene_name}_{question.question_type}_{question.id}"
        self.start = route_start(sim, self.route)
        stops = [landmark(sim, name) for name in self.route.stops]
        self.goal, self.label = stops[-1], self.route.stops[-1]
        self.fields = [goal_field(sim, stop, success_distance) for stop in stops]
        between = [float(after[before == 0].min()) for before, after in zip(self.fields, self.fields[1:])]
        self.left = [sum(between[number:]) for number in range(len(stops))]
        """Metres from each stop to the end, by way of those after it."""
        self.places = [np.array([self.start.x, self.start.y])]
        """Where the walk began, and where it was when each stop was reached."""
        self.shortest = self.distance(self.start)
        if not 0 < self.shortest < math.inf:
            raise EnvError(
                f"row {question.id} can't be walked in {sim.scene.id}: its stops are reached already, or never"
            )

    def distance(self, pose: Pose) -> float:
        """Walking distance in metres by way of the stops that are left; what is reached here is passed."""
        here = np.array([pose.x, pose.y])
        cell = self.sim.space.index(here)
        passed = len(self.places) - 1
        while passed < len(self.fields) and self.fields[passed][cell] == 0:
            self.places.append(here)
            passed += 1
        if passed == len(self.fields):
            return 0.0
        return float(self.fields[passed][cell]) + self.left[passed]

    @property
    def right_turns(self) -> bool:
        """Whether every turn made so far is the one that was asked for."""
        return all(
            wanted is None or made is None or wanted == made
            for wanted, made in zip(self.route.turns, self.turns_made())
        )

    def turns_made(self) -> list[int | None]:
        """The turn before each stop that was reached, as indices into NAMED_TURNS; None where a way was too short."""
        ways = np.diff(np.array(self.places), axis=0).reshape(-1, 2)
        heading = float(np.degrees(self.start.yaw))
        made: list[int | None] = []
        known = True
        for way in ways:
            clear = bool(np.hypot(*way) >= SHORTEST_LEG)
            angle = wrap_degrees(bearing(way) - heading)
            made.append(int(np.abs(wrap_degrees(MIDDLES - angle)).argmin()) if clear and known else None)
            heading, known = float(bearing(way)), clear
        return made
