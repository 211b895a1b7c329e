"""The world of nav-rloo: rooms, plans, demonstrations, and what is counted in its episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lookact.data.demos import Demo
from lookact.envs.chat_env import ChatEnv
from lookact.envs.experts.demonstrate import demonstrate
from lookact.envs.goals import QUESTIONS, Difficulty
from lookact.envs.navigation import Navigation, observe
from lookact.envs.scenes.generate import RoomStyle
from lookact.envs.scenes.questions.facts import spoken
from lookact.envs.scenes.scene import CLASSES
from lookact.seeding import derive
from lookact.train.config import setting
from lookact.types import Plan

INSTRUCTIONS = (
    "You walk through a room and see it through a camera. In each turn say in one sentence what you see of the object "
    'that is asked for, then give one action as JSON: {"rotation_angle_degrees": 30, "forward_meters": 0.75}. '
    "You turn first, a positive angle to the left, then walk forward. Stop within a metre of the object."
)
"""For models that were never shown the task."""


@dataclass(frozen=True)
class World:
    """Which rooms, how hard, and what is paid."""

    scenes: tuple[str, ...] = setting(
        (), help="ARKitScenes folders; none: rooms are generated on the spot", exists=True
    )
    image_size: int = setting(96, help="pixels a side, a multiple of 32", least=32)
    fov_degrees: float = setting(90.0, help="horizontal field of view", above=0, below=180)
    max_turns: int = setting(10, help="turns until an episode is cut off", least=1)
    objects: tuple[int, int] = setting((4, 8), help="fewest and most objects in a generated room", least=1)
    classes: tuple[str, ...] = setting(CLASSES, help="object classes in generated rooms")
    side: tuple[float, float] = setting(
        (4.0, 6.5), help="shortest and longest side of a generated room, metres", above=0
    )
    success_distance: float = setting(1.0, help="metres from the object that count as reached", above=0)
    start_distance: tuple[float, float] = setting(
        (2.5, 6.0), help="shortest and longest walk to the goal, metres", least=0
    )
    questions: tuple[str, ...] = setting(QUESTIONS, help="wordings of the task; {label} is the object")
    progress_weight: float = setting(0.0, help="pay for the share of the way covered, beside 1 for arriving", least=0)


def make_env(world: World) -> ChatEnv:
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


def make_plans(seed: int, split: str, *, groups: int, size: int = 1, step: int = 0) -> list[Plan]:
    """`groups` starts with `size` episodes each; splits of other names share no room."""
    plans = []
    for group in range(groups):
        path = (split, step, group)
        options = {"scene_seed": derive(seed, "scene", *path), "start_seed": derive(seed, "start", *path)}
        for copy in range(size):
            name = f"{split}-{step:05d}-{group:04d}-{copy:02d}"
            plans.append(Plan(id=name, group=group, seed=derive(seed, "episode", *path, copy), options=options))
    return plans


def make_demos(world: World, plans: Sequence[Plan], *, noise: float) -> Iterator[Demo]:
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


def room_style(world: World) -> RoomStyle:
    return RoomStyle(objects=world.objects, classes=world.classes, side=world.side)


def make_corpus(world: World) -> list[str]:
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
    demos = make_demos(world, make_plans(0, "corpus", groups=40), noise=0.2)
    return turns + questions + [reply for demo in demos for reply in demo.replies]
