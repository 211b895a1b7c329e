"""Task "navigation": walk through a room to the object that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.experts.demonstrate import demonstrate, random_move
from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.goals import Difficulty
from lookact.envs.rooms.motion import Limits
from lookact.envs.rooms.navigation import Navigation, observe
from lookact.envs.rooms.pretraining_images import LabelledImage, labelled_images
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.scene import label_text
from lookact.envs.wrappers.chat_env import ChatEnv
from lookact.errors import ParseError
from lookact.rollout.collect import make_specs
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.tasks.settings import NavigationConfig
from lookact.text.actions import parse_action
from lookact.training.evaluation import episode_numbers, flat_metrics, gather_numbers, make_report
from lookact.types import Demonstration, Episode, EpisodeSpec, FloorMap

REPORTED = ("success_rate", "spl", "turns", "valid_action_rate", "collisions")
ACTION_PARTS = ("rotation_angle_degrees", "forward_meters")


class Mapped(Protocol):
    """An environment that can be drawn from above."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any: ...
    def floor_map(self) -> FloorMap: ...


@dataclass(frozen=True)
class NavigationTask:
    """A `Task`: ObjectNav in generated rooms or ARKitScenes."""

    env: NavigationConfig
    outcome: ClassVar[dict[str, str]] = {"success_rate": "success", "spl": "spl", "collisions": "collisions"}
    best: ClassVar[str] = "success_rate"

    @property
    def image_size(self) -> int:
        return self.env.image_size

    def make_env(self) -> ChatEnv:
        env = self.env
        rooms = Navigation(
            scenes=env.scenes or None,
            style=self._style(),
            image_size=env.image_size,
            fov_degrees=env.fov_degrees,
            max_turns=env.max_turns,
            difficulty=Difficulty(success_distance=env.success_distance, start_distance=env.start_distance),
            questions=env.questions,
            progress_weight=env.progress_weight,
        )
        return ChatEnv(rooms, observe)

    def specs(self, seed: int, split: str, *, groups: int, group_size: int = 1, step: int = 0) -> list[EpisodeSpec]:
        return make_specs(seed, split, groups=groups, size=group_size, step=step)

    def demonstrations(self, specs: Sequence[EpisodeSpec], *, noise: float) -> Iterator[Demonstration]:
        env = self.make_env().env
        for spec in specs:
            steps = demonstrate(env, spec.seed, dict(spec.options), noise=noise)
            yield Demonstration(
                # a chat policy sees no depth, and demonstrations are held by the thousand
                observations=tuple(replace(step.observation, depth=None) for step in steps),
                replies=tuple(step.executed for step in steps),
                imitate=tuple(step.executed == step.label for step in steps),
            )

    def corpus(self) -> list[str]:
        """Every question, every feedback, every action."""
        env = self.env
        turns = [
            f"{word} Turn {turn} of {env.max_turns}."
            for word in ("Moved.", "Blocked.", "Invalid.")
            for turn in range(1, env.max_turns + 1)
        ]
        questions = [
            f"{question.format(label=label_text(label))} Turn 1 of {env.max_turns}."
            for question in env.questions
            for label in env.classes
        ]
        demos = self.demonstrations(self.specs(0, "corpus", groups=40), noise=0.2)
        return turns + questions + [reply for demo in demos for reply in demo.replies]

    def pretraining_images(self, seed: int, *, rooms: Iterable[int], per_room: int) -> Iterator[LabelledImage]:
        camera = Camera.square(self.env.image_size, self.env.fov_degrees)
        return labelled_images(seed, rooms=rooms, per_room=per_room, style=self._style(), camera=camera)

    def report(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Success rate, SPL (arXiv:1807.06757), turns, valid actions and collisions, each with its interval."""
        numbers = gather_numbers(episode_numbers(episodes, self.outcome))
        return make_report({name: numbers[name] for name in REPORTED}, rates=("success_rate",)).plain()

    def report_metrics(self, report: Mapping[str, Any]) -> dict[str, float]:
        return flat_metrics({name: report[name] for name in REPORTED})

    def compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        return {"before": before, "after": after}

    def histograms(self, episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
        """Every rotation and step that was asked for."""
        actions = []
        for turn in (turn for episode in episodes for turn in episode.turns):
            try:
                actions.append(parse_action(str(turn.decision.action)))
            except ParseError:
                continue
        return {name: np.array([action[name] for action in actions]) for name in ACTION_PARTS}

    def add_floor_map(self, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
        return floor_map_adder(self.make_env().env.unwrapped, specs)  # type: ignore[arg-type]

    def random_actor(self) -> RandomActor:
        """Moves drawn uniformly: the baseline."""
        return RandomActor(lambda rng: random_move(rng, Limits()).json())

    def _style(self) -> RoomStyle:
        return RoomStyle(objects=self.env.objects, classes=self.env.classes, side=self.env.side)


def make_navigation(env: NavigationConfig, seed: int) -> NavigationTask:
    return NavigationTask(env)


def floor_map_adder(env: Mapped, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
    """Gives an episode the map of `env` at its start; one that never began has none."""
    by_id = {spec.id: spec for spec in specs}

    def add(episode: Episode) -> Episode:
        if not episode.turns:
            return episode
        spec = by_id[episode.id]
        env.reset(seed=spec.seed, options=dict(spec.options))
        return replace(episode, floor_map=env.floor_map())

    return add
