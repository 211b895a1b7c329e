"""`lookact/SpatialVQA-v0`: look around a scene and answer a VSI-Bench question about it.

Each turn the agent moves the camera (`{"rotation_angle_degrees": 30, "forward_meters": 0.5}`) or answers
(`{"answer": "B"}`, `{"answer": "2.4"}`), which ends the episode with VSI-Bench's score as reward. The last turn
demands an answer: without one the episode ends with 0. It always ends by its own rules, so it terminates and is
never truncated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import gymnasium

from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.interface import Reply, Shown, episode_seeds, feedback, observation_space, reply_space
from lookact.envs.rooms.motion import Limits, Pose, clamp
from lookact.envs.rooms.questions import ask, named_labels
from lookact.envs.rooms.questions.coverage import Coverage
from lookact.envs.rooms.questions.relations import DISTANCE_CHOICES
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.routes import beside, read_route, route_start
from lookact.envs.rooms.simulator import (
    Simulator,
    Walker,
    cached_floor_map,
    generated_simulator,
    random_pose,
    recorded_simulator,
    uncrowded_cells,
)
from lookact.envs.rooms.vsi import Question, format_prompt
from lookact.envs.rooms.wordings import TYPES
from lookact.errors import ConfigError, EnvError, ParseError
from lookact.seeding import derive, numpy_rng
from lookact.text.actions import ANSWER_KEY, parse_move_or_answer
from lookact.text.answers import DIRECTION_TYPES, QUESTION_TYPES, score_answer
from lookact.types import FloorMap, Image, Observation

ATTEMPTS = 40
PATIENCE = 4
"""Rooms that are tried for a type of question before the next type's turn."""
COUNTED_KINDS = 2
PROMPT_LENGTH = 2048


@dataclass(frozen=True, eq=False)
class VQATask:
    """A question with the scene it is about and the start pose."""

    sim: Simulator
    question: Question
    start: Pose


class SpatialVQA(gymnasium.Env[Shown, Reply]):
    """Observations are `rgb`, `depth`, `pose` (x, y, yaw, height) and the `prompt` of the turn."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012

    def __init__(
        self,
        *,
        rows: Sequence[tuple[Question, str]] | None = None,
        types: tuple[str, ...] = TYPES,
        style: RoomStyle | None = None,
        image_size: int = 96,
        fov_degrees: float = 90.0,
        max_turns: int = 6,
        limits: Limits | None = None,
        turn_cost: float = 0.0,
        paraphrase: bool = False,
        distance_choices: int = DISTANCE_CHOICES,
        start_as_asked: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """`rows` are questions with the names of their scenes (`scene_sources`); without them rooms are generated in
        `style` and asked about by `types`. Every turn that does not answer costs `turn_cost`;
        `paraphrase` puts generated questions in several wordings, not in VSI-Bench's alone; `distance_choices` is how
        many options there are for what is closest; with `start_as_asked` an episode about a direction begins where
        its question says that one stands, and faces what it says one faces."""
        if rows is not None and not rows:
            raise ConfigError("rows is empty: give at least one question, or leave it out to generate them")
        if unknown := set(types) - set(QUESTION_TYPES):
            raise ConfigError(f"unknown question types {sorted(unknown)}: choose from {', '.join(QUESTION_TYPES)}")
        self.rows = rows
        self.types = types
        # things that occur twice are there to be counted
        self.style = style or RoomStyle(distinct=False)
        self.camera = Camera.square(image_size, fov_degrees)
        self.max_turns = max_turns
        self.limits = limits or Limits()
        self.turn_cost = turn_cost
        self.paraphrase = paraphrase
        self.distance_choices = distance_choices
        self.start_as_asked = start_as_asked
        self.render_mode = render_mode
        self.observation_space = observation_space(image_size, text="prompt", length=PROMPT_LENGTH)
        self.action_space = reply_space()
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        """Options `scene_seed` (with `rows`: the row) and `start_seed` (question and start) win over `seed`."""
        super().reset(seed=seed)
        self.task = self._find_task(*episode_seeds(self, seed, options))
        self.walker = Walker(self.task.sim, self.task.start, self.camera, self.limits)
        self.seen = Coverage(self.task.question, tuple(box.label for box in self.task.sim.scene.boxes))
        self.seen.add(self.walker.view)
        self.turn = 0
        self._over = False
        info = self._with_prompt(self._info())
        return self._shown(info), info

    def step(self, action: Reply) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        self.turn += 1
        before = self.seen.share
        outcome = self._respond(action)
        self.seen.add(self.walker.view)
        info = self._info() | outcome | {"seen_share_before": before}
        self._over = info["answered"] or self.turn >= self.max_turns
        parts = {
            "answer_reward": self._score(info["prediction"]) if info["answered"] else 0.0,
            "turn_reward": 0.0 if info["answered"] else -self.turn_cost,
        }
        info = self._with_prompt(info | parts)
        return self._shown(info), sum(parts.values()), self._over, False, info

    def render(self) -> Image | None:
        return self.walker.view.rgb.copy() if self.render_mode == "rgb_array" else None

    def floor_map(self) -> FloorMap:
        """The episode's room from above."""
        return cached_floor_map(self.task.sim)

    def _respond(self, action: Reply) -> dict[str, Any]:
        """Carry the action out; what changed in the info."""
        text = action if isinstance(action, str) else json.dumps(dict(action), default=float)
        try:
            keys = parse_move_or_answer(text)
        except ParseError as problem:
            return {"valid_action": False, "action_error": str(problem)}
        if ANSWER_KEY in keys:
            return {"answered": True, "prediction": keys[ANSWER_KEY]}
        return {"collided": self.walker.move(clamp(keys, self.limits)).collided}

    def _score(self, prediction: str) -> float:
        question = self.task.question
        return score_answer(question.question_type, prediction, question.ground_truth)

    def _find_task(self, scene_seed: int, start_seed: int) -> VQATask:
        if self.rows is not None:
            question, source = self.rows[scene_seed % len(self.rows)]
            sim = recorded_simulator(source)
            return VQATask(sim, question, self._start(sim, question, start_seed))
        order = numpy_rng(start_seed, "type").permutation(len(self.types))
        for attempt in range(ATTEMPTS):
            seed = derive(scene_seed, "again", attempt) if attempt else scene_seed
            # a type that fits no room gives way to the next
            kind = self.types[order[attempt // PATIENCE % len(order)]]
            sim = generated_simulator(seed, style_for(kind, self.style, seed))
            if (drawn := draw_question(sim, start_seed, kind, self.paraphrase, self.distance_choices)) is not None:
                return VQATask(sim, drawn, self._start(sim, drawn, start_seed))
        raise EnvError(f"no question of the types {self.types} fits any of {ATTEMPTS} scenes: add types or objects")

    def _start(self, sim: Simulator, question: Question, seed: int) -> Pose:
        """Where a question says that one stands, if it begins there and its landmarks have boxes; else anywhere."""
        kind = question.question_type
        if kind == "route_planning" or (self.start_as_asked and kind in DIRECTION_TYPES):
            try:
                return route_start(sim, read_route(question)) if kind == "route_planning" else asked_pose(sim, question)
            except EnvError:
                pass
        return random_pose(sim, numpy_rng(seed, "start"), uncrowded_cells(sim.space))

    def _shown(self, info: Mapping[str, Any]) -> Shown:
        return self.walker.view.shown() | {"prompt": info["prompt"]}

    def _with_prompt(self, info: dict[str, Any]) -> dict[str, Any]:
        asked = f"{format_prompt(self.task.question)}\n" if self.turn == 0 else ""
        return info | {"prompt": asked + turn_prompt(info)}

    def _info(self) -> dict[str, Any]:
        question = self.task.question
        return {
            "answered": False,
            "prediction": "",
            "ground_truth": question.ground_truth,
            "question_type": question.question_type,
            "question_id": f"{question.scene_name}_{question.question_type}_{question.id}",
            "scene_id": self.task.sim.scene.id,
            "collided": False,
            "collisions": self.walker.collisions,
            "path_length": self.walker.path_length,
            "seen_share": self.seen.share,
            "seen_share_before": self.seen.share,
            "valid_action": True,
            "action_error": "",
            "turn": self.turn,
            "max_turns": self.max_turns,
        }


def style_for(kind: str, style: RoomStyle, seed: int) -> RoomStyle:
    """Rooms to count in hold one kind or two, so that there are many of a kind; relations need things that are the
    only one of theirs."""
    if kind == "object_counting":
        rng = numpy_rng(seed, "kinds")
        chosen = sorted(rng.permutation(len(style.classes))[: rng.integers(1, COUNTED_KINDS + 1)])
        return replace(style, classes=tuple(style.classes[index] for index in chosen), distinct=False)
    if kind == "room_size_estimation":
        return style
    fewest, most = (min(count, len(style.classes)) for count in style.objects)
    return replace(style, objects=(fewest, most), distinct=True)


def asked_pose(sim: Simulator, question: Question) -> Pose:
    """By the first thing that a question about a direction names, facing the second."""
    here, there, *_ = named_labels(question)
    return beside(sim, here, facing=there)


@lru_cache(maxsize=256)
def draw_question(
    sim: Simulator, seed: int, kind: str, paraphrase: bool = False, distance_choices: int = DISTANCE_CHOICES
) -> Question | None:
    """A question of the type, or None where the scene has no clear one."""
    drawn = ask(
        sim.scene,
        seed=derive(seed, "question"),
        types=(kind,),
        paraphrase=paraphrase,
        distance_choices=distance_choices,
    )
    return drawn[0] if drawn else None


def observe(shown: Mapping[str, Any], info: Mapping[str, Any]) -> Observation:
    """What a chat model reads: the turn's prompt as it is."""
    return Observation(info["prompt"], {"head": shown["rgb"]}, shown["depth"], shown["pose"])


def turn_prompt(info: Mapping[str, Any]) -> str:
    """How the last turn went and what this one asks for."""
    turn, turns = info["turn"] + 1, info["max_turns"]
    if info["answered"] or turn > turns:
        return "Done."
    asked = f"Turn {turn} of {turns}: {'answer now' if turn == turns else 'move or answer'}."
    return asked if turn == 1 else f"{feedback(info)} {asked}"
