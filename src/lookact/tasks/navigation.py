"""The world of nav-rloo: rooms, plans, demonstrations, and what is counted in its episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lookact.data.demos import Demo
from lookact.envs.rooms.experts.demonstrate import demonstrate
from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.goals import Difficulty
from lookact.envs.rooms.navigation import Navigation, observe
from lookact.envs.rooms.questions.facts import spoken
from lookact.envs.wrappers.chat_env import ChatEnv
from lookact.rollout.episode_specs import make_specs
from lookact.tasks.settings import NavigationConfig
from lookact.types import Episode, EpisodeSpec, FloorMap


class Mapped(Protocol):
    """A world that can be seen from above."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any: ...
    def floor_map(self) -> FloorMap: ...


def make_env(world: NavigationConfig) -> ChatEnv:
    """One navigation environment that a chat policy can act in."""
    env = Navigation(
        scenes=world.scenes or None,
        style=room_style(world),
        image_size=world.image_size,
        fov_degrees=world.fov_degrees,
        max_turns=world.max_turns,
        difficulty=Difficulty(success_distance=world.success_distance, start_distance=world.start_distance),
        questions=world.questions,
        progress_weight=world.progress_weight,
    )
    return ChatEnv(env, observe)


def map_drawer(world: NavigationConfig, plans: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
    """Gives an episode of one of the plans the map of its room."""
    return drawer_in(make_env(world).env.unwrapped, plans)  # type: ignore[arg-type]


def drawer_in(env: Mapped, plans: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
    """The same, by what `env` looks like from above when the episode begins; one that never began has no map."""
    by_id = {plan.id: plan for plan in plans}

    def draw(episode: Episode) -> Episode:
        if not episode.turns:
            return episode
        plan = by_id[episode.id]
        env.reset(seed=plan.seed, options=dict(plan.options))
        return replace(episode, floor_map=env.floor_map())

    return draw


def make_demos(world: NavigationConfig, plans: Sequence[EpisodeSpec], *, noise: float) -> Iterator[Demo]:
    """The navigator's episodes; with probability `noise` a random action takes the place of its own."""
    env = make_env(world).env
    for plan in plans:
        steps = demonstrate(env, plan.seed, dict(plan.options), noise=noise)
        yield Demo(
            # a chat policy sees no depth, and demonstrations are held by the thousand
            observations=tuple(replace(step.observation, depth=None) for step in steps),
            replies=tuple(step.executed for step in steps),
            imitate=tuple(step.executed == step.label for step in steps),
        )


def room_style(world: NavigationConfig) -> RoomStyle:
    return RoomStyle(objects=world.objects, classes=world.classes, side=world.side)


def make_corpus(world: NavigationConfig) -> list[str]:
    """Texts in which the tiny tokenizer finds its pieces: every question, every feedback, every action."""
    labels = [spoken(label) for label in world.classes]
    turns = [
        f"{word} Turn {turn} of {world.max_turns}."
        for word in ("Moved.", "Blocked.", "Invalid.")
        for turn in range(1, world.max_turns + 1)
    ]
    questions = [
        f"{question.format(label=label)} Turn 1 of {world.max_turns}."
        for question in world.questions
        for label in labels
    ]
    demos = make_demos(world, make_specs(0, "corpus", groups=40), noise=0.2)
    return turns + questions + [reply for demo in demos for reply in demo.replies]
