"""`lookact/Navigation-v0`: walk through a room to the object that a question names.

An action is a reply with `{"rotation_angle_degrees": 30, "forward_meters": 0.5}` in it, or that dict: turn first
(positive is left), then walk until blocked. The episode terminates when the object is reached (see `goals`) and is
truncated after `max_turns`. The reward is 1 on reaching it and 0 otherwise, plus `progress_weight` times
gamma * p' - p, where the potential p is minus the distance left, as a share of the distance at the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.goals import Choice, Difficulty, NavigationTask, find_task
from lookact.envs.rooms.interface import Reply, Shown, episode_seeds, feedback, observation_space, reply_space
from lookact.envs.rooms.motion import Limits, read_move
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.routes import RouteWalk, as_question
from lookact.envs.rooms.scene_sources import scene_id, scene_sources
from lookact.envs.rooms.simulator import Simulator, Walker, cached_floor_map, generated_simulator, recorded_simulator
from lookact.envs.rooms.wordings import QUESTIONS
from lookact.errors import ConfigError, EnvError, ParseError
from lookact.seeding import derive
from lookact.types import FloorMap, Image, Observation

__all__ = ["Navigation", "observe"]

ATTEMPTS = 20
GENERATED = "generated"
"""Names any generated room, among scenes too."""
QUESTION_LENGTH = 1024


class Navigation(gymnasium.Env[Shown, Reply]):
    """Observations are `rgb`, `depth`, `pose` (x, y, yaw, height) and the `question`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012

    def __init__(
        self,
        *,
        scenes: Sequence[str] | None = None,
        style: RoomStyle | None = None,
        image_size: int = 96,
        fov_degrees: float = 90.0,
        max_turns: int = 10,
        limits: Limits | None = None,
        difficulty: Difficulty | None = None,
        questions: tuple[str, ...] = QUESTIONS,
        progress_weight: float = 0.0,
        gamma: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        """`scenes` are ARKitScenes folders or scene notes; without them rooms are generated in `style`."""
        if scenes is not None and not scenes:
            raise ConfigError("scenes is empty: name at least one folder, or leave it out to generate rooms")
        self.scenes = None if scenes is None else scene_sources(scenes)
        self.style = style or RoomStyle()
        self.camera = Camera.square(image_size, fov_degrees)
        self.max_turns = max_turns
        self.limits = limits or Limits()
        self.difficulty = difficulty or Difficulty()
        self.questions = questions
        self.progress_weight = progress_weight
        self.gamma = gamma
        self.render_mode = render_mode
        self.observation_space = observation_space(image_size, text="question", length=QUESTION_LENGTH)
        self.action_space = reply_space()
        self.turn, self.distance = 0, 0.0
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        """Options `scene_seed` and `start_seed` fix the room, and the goal with its start; else `seed` does.

        Others choose by name: `scene` (an id; room-7 where rooms are generated; "generated" for a generated room
        beside `scenes`), `goal` (a label that one object bears, or a box's uid), `pose` (x, y, yaw), `question` (text),
        `route` (a route_planning row, walked).
        """
        super().reset(seed=seed)
        scene_seed, start_seed = episode_seeds(self, seed, options)
        chosen = options or {}
        if (row := chosen.get("route")) is not None:
            route = as_question(row)
            sim = self._named_simulator(chosen.get("scene", route.scene_name))
            self._begin(RouteWalk(sim, route, self.difficulty.success_distance))
        else:
            self._begin(self._find_task(scene_seed, start_seed, chosen.get("scene"), Choice.of(chosen)))
        return self._shown(), self._info(False, "")

    def step(self, action: Reply) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        self.turn += 1
        collided, problem = self._move(action)
        before, self.distance = self.distance, self.task.distance(self.walker.pose)
        arrived = self.distance == 0.0
        success = arrived and self.task.right_turns
        truncated = not arrived and self.turn >= self.max_turns
        self._over = arrived or truncated
        progress = (before - self.gamma * self.distance) / self.task.shortest
        parts = {"goal_reward": float(success), "progress_reward": self.progress_weight * progress}
        return self._shown(), sum(parts.values()), arrived, truncated, self._info(collided, problem) | parts

    def render(self) -> Image | None:
        return self.walker.view.rgb.copy() if self.render_mode == "rgb_array" else None

    def floor_map(self) -> FloorMap:
        """The episode's room from above, with the goal marked."""
        return cached_floor_map(self.task.sim, self.task.goal)

    def _begin(self, task: NavigationTask | RouteWalk) -> None:
        self.task = task
        self.walker = Walker(self.task.sim, self.task.start, self.camera, self.limits)
        self.distance = self.task.shortest
        self.turn = 0
        self._over = False

    def _find_task(self, scene_seed: int, start_seed: int, scene: Any, choice: Choice) -> NavigationTask:
        for attempt in range(ATTEMPTS if scene in (None, GENERATED) else 1):
            seed = derive(scene_seed, "again", attempt) if attempt else scene_seed
            sim = self._simulator(seed, scene) if scene in (None, GENERATED) else self._named_simulator(scene)
            if (task := find_task(sim, start_seed, self.difficulty, self.questions, choice)) is not None:
                return task
        if choice.pose is not None:
            raise EnvError(f"option pose {choice.pose} is at a goal already, or has no way to one: give another")
        where = f"{ATTEMPTS} scenes" if scene is None else f"scene {scene}"
        raise EnvError(f"no start {self.difficulty.start_distance} m from a goal in {where}: widen the range")

    def _named_simulator(self, name: Any) -> Simulator:
        """The scene of that id; a generated room is called room-SEED."""
        if self.scenes is None:
            if (seed := str(name).removeprefix("room-")).isdecimal():
                return generated_simulator(int(seed), self.style)
            raise EnvError(f"option scene is {name!r}: rooms are generated here, give room-7 or a number")
        found = [source for source in self.scenes if scene_id(source) == str(name)]
        if not found:
            some = ", ".join(scene_id(source) for source in self.scenes[:3])
            raise EnvError(f"option scene is {name!r}: {len(self.scenes)} scenes are given, such as {some}")
        return recorded_simulator(found[0])

    def _simulator(self, seed: int, scene: str | None) -> Simulator:
        if self.scenes is None or scene == GENERATED:
            return generated_simulator(seed, self.style)
        return recorded_simulator(self.scenes[seed % len(self.scenes)])

    def _move(self, action: Reply) -> tuple[bool, str]:
        """Whether it collided, and why the action could not be read if so."""
        try:
            return self.walker.move(read_move(action, self.limits)).collided, ""
        except ParseError as problem:
            return False, str(problem)

    def _shown(self) -> Shown:
        return self.walker.view.shown() | {"question": self.task.question}

    def _info(self, collided: bool, problem: str) -> dict[str, Any]:
        success, shortest = self.distance == 0.0 and self.task.right_turns, self.task.shortest
        return {
            "success": success,
            "spl": success * shortest / max(self.walker.path_length, shortest),
            "path_length": self.walker.path_length,
            "shortest_path": shortest,
            "distance_to_goal": self.distance,
            "collided": collided,
            "collisions": self.walker.collisions,
            "valid_action": not problem,
            "action_error": problem,
            "turn": self.turn,
            "max_turns": self.max_turns,
            "question": self.task.question,
            "goal": self.task.label,
            "scene_id": self.task.sim.scene.id,
            "question_id": self.task.question_id,
        }


def observe(shown: Mapping[str, Any], info: Mapping[str, Any]) -> Observation:
    """What a chat model reads: a word on how the last move went, the question, and the turn.

    The question comes again in every turn: right behind the picture, a small model finds what it asks about.
    """
    words = (
        [info["question"], turn_text(info)]
        if info["turn"] == 0
        else [feedback(info), info["question"], turn_text(info)]
    )
    return Observation(
        text=" ".join(words),
        images={"head": shown["rgb"]},
        depth=shown["depth"],
        state=shown["pose"],
    )


def turn_text(info: Mapping[str, Any]) -> str:
    """Which turn comes next, or that the episode is over."""
    if info["success"]:
        return "Arrived."
    return f"Turn {info['turn'] + 1} of {info['max_turns']}." if info["turn"] < info["max_turns"] else "Out of turns."
